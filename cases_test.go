package house_test

import (
	"go/ast"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// cases are those that others have met, from public issue reports, by family: what
// went wrong in gateways, clients and servers, and must not here. A test that holds one
// has its id in its name (FRAME_01 or FRAME01).
const cases = `
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

// untested says of the others why they have no test.
var untested = map[string]string{
	"AUTH_02":   "the gateway has no OAuth towards backends yet: it sends the headers that are configured",
	"AUTH_04":   "the gateway opens no browser and has no callback port: no OAuth towards backends yet",
	"CONFIG_07": "it is about Windows, where the code is built and vetted, and cannot be run here",
}

// TestEveryOpenCase holds that each case is in a test's name, or is said not to be. With -v it
// prints which test holds which case.
func TestEveryOpenCase(t *testing.T) {
	held := make(map[string][]string)
	var families []string
	for line := range strings.Lines(cases) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		families = append(families, fields[0])
		for _, number := range fields[1:] {
			held[fields[0]+"_"+number] = nil
		}
	}
	if len(held) != 96 {
		t.Errorf("%d cases, not 96", len(held))
	}
	id := regexp.MustCompile(`(?:^|[^A-Z0-9a-z]|Test)(` + strings.Join(families, "|") + `)_?(\d\d)(?:\D|$)`)
	for name, where := range testNames(t) {
		for rest := fieldRow.ReplaceAllString(name, ""); ; {
			at := id.FindStringSubmatchIndex(rest)
			if at == nil {
				break
			}
			of := rest[at[2]:at[3]] + "_" + rest[at[4]:at[5]]
			if _, known := held[of]; !known {
				t.Errorf("%s: %s names %s, which is no case", where, name, of)
			}
			held[of] = append(held[of], where+": "+name)
			rest = rest[at[5]:]
		}
	}
	for _, of := range slices.Sorted(maps.Keys(held)) {
		reason, excused := untested[of]
		switch {
		case len(held[of]) == 0 && !excused:
			t.Errorf("%s: no test has it in its name", of)
		case len(held[of]) > 0 && excused:
			t.Errorf("%s has a test, and a reason why it has none", of)
		}
		slices.Sort(held[of])
		t.Logf("%s: %s", of, strings.Join(append(held[of], reason), "\n\t"))
	}
}

// fieldRow is a row of the faults that were found by trying the gateway.
var fieldRow = regexp.MustCompile(`F[-_][A-Z]+[-_]\d+`)

// testNames returns the name of each test, with where it is: of functions, of subtests that are
// named by a constant, and of files that are run as subtests.
func testNames(t *testing.T) map[string]string {
	names := make(map[string]string)
	eachFile(t, func(_ string, path string, file *ast.File) {
		if !strings.HasSuffix(path, "_test.go") {
			return
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if strings.HasPrefix(n.Name.Name, "Test") {
					names[n.Name.Name] = path
				}
			case *ast.CallExpr:
				if f, ok := n.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "Run" && len(n.Args) == 2 {
					if lit, ok := n.Args[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
						name, _ := strconv.Unquote(lit.Value)
						names[name] = path
					}
				}
			}
			return true
		})
	})
	for _, pattern := range []string{"*/testdata/*.txtar", "*/testdata/*.bad.yml", "*/testdata/*.good.yml"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			names[filepath.Base(file)] = filepath.Dir(file)
		}
	}
	return names
}
