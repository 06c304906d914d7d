package integration

import (
	"go/ast"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"mcpgateway/internal/mcptest/gosource"
)

// publicCases lists faults from public issue reports about gateways, clients and servers, by
// family. A test that covers a case has the id in its name (FRAME_01 or FRAME01).
const publicCases = `
FRAME    01 04 05 07 08 09 11 14
PROC     01 04 05 06 08 11
START    01 04 07 08
PARTIAL  03 05 06 08
ID       02 04 05 07 09
NOTIF    04 07 10 11 13 14 15 16 19 20
NAME     01 03 05 06 07 11
SCHEMA   03 04 05
FIDELITY 01 02 04 05 06 08 14 16 17
PAGE     03
RES      01 05 06
S2C      02 04
VERSION  02 03 04 05 07
HTTP     02 04 05 06 09 10
LEAK     01 02
CONC     01 04 07 09 11
AUTH     02 04
SEC      01 03 06 07
CONFIG   04 05 07 08 09
CONTEXT  04 05 06
OBS      01 03 05`

// untestedPublic has the reasons why cases have no test.
var untestedPublic = map[string]string{
	"AUTH_02":   "the gateway has no OAuth towards backends yet: it sends the headers that are configured",
	"AUTH_04":   "the gateway opens no browser and has no callback port: no OAuth towards backends yet",
	"CONFIG_07": "applies to Windows, for which the code is built and vetted, but not run in these tests",
}

// TestCases_PublicReports checks that each public case has a test with its id in the name, or a
// reason why it has none. With -v it prints the tests of each case.
func TestCases_PublicReports(t *testing.T) {
	checkCases(t, publicCases, 96, "", untestedPublic)
}

// fieldCases lists the faults that were found by trying the built gateway with real servers,
// clients and attacks, by family. A test that covers a case has the id in its name (F_LIST_1 or
// F-LIST-1).
const fieldCases = `
LIST  1 2 3 4 5 6
HTTP  1 2 3 4 5 6 7 8 9 10 11 12 13 14
DOOR  1 2 3 4 5 6 7 8 9
SEC   1 2 3 4 5 6 7 8 9 10 11 12
CLI   1 2 3 4 5 6 7 8 9 10 11 12 13
PROC  1 2 3
STATE 1
MASK  1
LOG   1 2
CFG   1 2 3`

// untestedField has the reasons why cases have no test.
var untestedField = map[string]string{}

// TestCases_FieldFaults checks the same for fieldCases.
func TestCases_FieldFaults(t *testing.T) {
	checkCases(t, fieldCases, 64, "F_", untestedField)
}

// checkCases checks that each case of a table is in the name of a test or has a reason in
// untested. count is the number of cases; prefix precedes the family in names.
func checkCases(t *testing.T, table string, count int, prefix string, untested map[string]string) {
	t.Helper()
	tests := make(map[string][]string)
	var families []string
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		families = append(families, fields[0])
		for _, number := range fields[1:] {
			tests[prefix+fields[0]+"_"+number] = nil
		}
	}
	if len(tests) != count {
		t.Errorf("%d cases, want %d", len(tests), count)
	}
	for name, where := range testNames(t) {
		for _, id := range caseIDs(name, prefix, families) {
			if _, known := tests[id]; !known {
				t.Errorf("%s: %s names %s, which is not a case", where, name, id)
			}
			tests[id] = append(tests[id], where+": "+name)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(tests)) {
		reason, hasReason := untested[id]
		switch {
		case len(tests[id]) == 0 && !hasReason:
			t.Errorf("%s: no test has this id in its name", id)
		case len(tests[id]) > 0 && hasReason:
			t.Errorf("%s has a test and a reason why it has none", id)
		}
		slices.Sort(tests[id])
		t.Logf("%s: %s", id, strings.Join(append(tests[id], reason), "\n\t"))
	}
}

// fieldID matches the id of a case of fieldCases, which contains text that looks like an id of
// the other table.
var fieldID = regexp.MustCompile(`F[-_]([A-Z]+)[-_](\d+)`)

// caseIDs returns the ids in the name of a test.
func caseIDs(name, prefix string, families []string) (ids []string) {
	if prefix != "" {
		for _, match := range fieldID.FindAllStringSubmatch(name, -1) {
			ids = append(ids, prefix+match[1]+"_"+match[2])
		}
		return ids
	}
	id := regexp.MustCompile(`(?:^|[^A-Z0-9a-z]|Test)(` + strings.Join(families, "|") +
		`)_?(\d\d)(?:\D|$)`)
	for rest := fieldID.ReplaceAllString(name, ""); ; {
		at := id.FindStringSubmatchIndex(rest)
		if at == nil {
			return ids
		}
		ids = append(ids, rest[at[2]:at[3]]+"_"+rest[at[4]:at[5]])
		rest = rest[at[5]:]
	}
}

// testNames returns the name of each test with its location: functions, subtests whose name is a
// string literal, and files that are run as subtests.
func testNames(t *testing.T) map[string]string {
	names := make(map[string]string)
	for _, f := range gosource.Files(t) {
		if !f.IsTest() {
			continue
		}
		ast.Inspect(f.Syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if strings.HasPrefix(n.Name.Name, "Test") {
					names[n.Name.Name] = f.Path
				}
			case *ast.CallExpr:
				if fn, ok := n.Fun.(*ast.SelectorExpr); ok && fn.Sel.Name == "Run" &&
					len(n.Args) == 2 {
					if lit, ok := n.Args[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
						name, _ := strconv.Unquote(lit.Value)
						names[name] = f.Path
					}
				}
			}
			return true
		})
	}
	root := gosource.Root(t)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == ".git"):
			return filepath.SkipDir
		case d.IsDir() || !strings.Contains(filepath.ToSlash(path), "/testdata/"):
			return nil
		}
		for _, suffix := range []string{".txtar", ".bad.yml", ".good.yml"} {
			if strings.HasSuffix(path, suffix) {
				names[filepath.Base(path)] = filepath.Dir(path)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
