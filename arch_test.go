// Package arch_test checks the rules of this module that the compiler does not know: which package
// may import what, what the top level contains, and how code is written.
package arch_test

import (
	"go/ast"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"mcpgateway/internal/mcptest/gosource"
)

// topLevel is what the root of the repository may contain.
var topLevel = []string{
	".ci", ".git", ".gitattributes", ".github", ".gitignore", ".goreleaser.yaml", "CHANGELOG.md",
	"CONTRIBUTING.md", "LICENSE",
	"Makefile", "README.md", "arch_test.go", "style_test.go", "backends", "bin", "build", "catalog",
	"cmd",
	"config.example.yaml",
	"deploy", "docs", "gateway", "go.mod", "go.sum", "idmap", "integration", "internal",
}

// allowedImports lists for each package of the product the packages of this module that it may
// import. Every package of the product has an entry. docs/decisions/001 gives the reasons.
var allowedImports = map[string][]string{
	// messages
	"internal/wire":     {},
	"internal/protocol": {"internal/wire"},
	"catalog": {"internal/lazy", "internal/protocol", "internal/text",
		"internal/wire"},
	// connections
	"internal/procgroup":       {},
	"internal/transport":       {"internal/wire"},
	"internal/sse":             {"internal/transport", "internal/wire"},
	"internal/transport/child": {"internal/procgroup", "internal/transport", "internal/wire"},
	"internal/transport/http1": {},
	"internal/transport/httpclient": {
		"internal/protocol", "internal/sse", "internal/text", "internal/transport",
		"internal/transport/http1", "internal/weburl", "internal/wire",
	},
	"internal/httpserver": {"internal/principal", "internal/protocol", "internal/quota",
		"internal/resourceserver", "internal/text", "internal/transport", "internal/weburl",
		"internal/wire"},
	"internal/resourceserver": {"internal/principal", "internal/weburl", "internal/wire"},
	"idmap":                   {},
	"internal/contract":       {"internal/wire"},
	"internal/peer":           {"idmap", "internal/protocol", "internal/transport", "internal/wire"},
	// the engine: gateway and backends do not import each other
	"gateway/internal/mrtr": {
		"catalog", "internal/contract", "internal/peer", "internal/principal", "internal/protocol",
		"internal/quota", "internal/text", "internal/wire",
	},
	"gateway": {
		"catalog", "gateway/internal/mrtr", "internal/audit", "internal/callid", "internal/contract",
		"internal/peer",
		"internal/principal", "internal/protocol", "internal/quota", "internal/ratelimit",
		"internal/text", "internal/transport", "internal/transport/child", "internal/wire",
	},
	"backends": {
		"backends/internal/catalogcache", "backends/internal/containers",
		"backends/internal/limiter", "backends/internal/lockrank", "backends/internal/loglimit",
		"backends/internal/supervise",
		"catalog", "internal/config", "internal/config/pins", "internal/contract", "internal/demo",
		"internal/oauthclient", "internal/peer", "internal/principal", "internal/protocol",
		"internal/quota", "internal/text", "internal/transport", "internal/transport/child",
		"internal/transport/httpclient", "internal/wire",
	},
	"internal/oauthclient": {"internal/atomicfile", "internal/filelock", "internal/lazy",
		"internal/text", "internal/weburl"},
	"internal/demo": {"internal/peer", "internal/protocol", "internal/transport", "internal/wire"},
	// subjects of backends that do not need its types
	"backends/internal/catalogcache": {"catalog", "internal/atomicfile", "internal/lazy",
		"internal/wire"},
	"backends/internal/containers": {"internal/atomicfile", "internal/lazy",
		"internal/transport", "internal/transport/child", "internal/wire"},
	"backends/internal/limiter":   {},
	"backends/internal/lockrank":  {},
	"backends/internal/loglimit":  {},
	"backends/internal/supervise": {},
	// configuration, records and logs
	"internal/config": {
		"internal/config/internal/dialect", "internal/config/internal/expand",
		"internal/config/internal/node", "internal/lazy", "internal/secrets", "internal/text",
		"internal/weburl",
	},
	"internal/config/clientimport": {
		"internal/config", "internal/config/internal/dialect", "internal/config/internal/expand",
		"internal/config/internal/node", "internal/lazy", "internal/secrets", "internal/text",
		"internal/weburl",
	},
	"internal/keyring":   {"internal/filelock"},
	"internal/loginpage": {"internal/oauthclient"},
	"internal/secretcmd": {"internal/procgroup"},
	"internal/config/pins": {
		"internal/atomicfile", "internal/config", "internal/config/internal/node",
		"internal/filelock", "internal/lazy", "internal/wire",
	},
	"internal/config/internal/dialect": {
		"internal/config/internal/expand", "internal/config/internal/node", "internal/lazy",
		"internal/weburl",
	},
	"internal/config/internal/expand": {"internal/config/internal/node"},
	"internal/config/internal/node":   {"internal/lazy"},
	"internal/audit": {"internal/callid", "internal/secrets",
		"internal/text"},
	"internal/auditlog": {"internal/audit", "internal/auditfile",
		"internal/protocol"},
	"internal/callid":     {},
	"internal/auditchain": {},
	"internal/auditfile":  {"internal/auditchain", "internal/filelock"},
	"internal/logging":    {"internal/secrets"},
	"internal/filelock":   {},
	"internal/secrets":    {"internal/lazy"},
	"internal/lazy":       {},
	"internal/text":       {},
	"internal/weburl":     {},
	"internal/quota":      {},
	"internal/principal":  {"internal/quota", "internal/text"},
	"internal/ratelimit":  {"internal/config", "internal/principal"},
	// the admin API
	"internal/metrics":  {"internal/activity", "internal/adminapi"},
	"internal/activity": {"gateway", "internal/audit", "internal/protocol", "internal/text"},
	"internal/adminapi": {"internal/atomicfile"},
	"internal/adminserver": {"internal/adminapi", "internal/adminserver/page",
		"internal/weburl"},
	"internal/adminserver/page": {},
	"internal/tracing": {
		"gateway", "internal/audit", "internal/callid", "internal/config", "internal/contract",
		"internal/peer", "internal/protocol", "internal/secrets", "internal/text",
		"internal/transport", "internal/wire",
	},
	// the program
	"internal/doctor": {"internal/config", "internal/config/clientimport", "internal/lazy",
		"internal/procgroup", "internal/secrets", "internal/text"},
	"internal/reload":     {"internal/atomicfile", "internal/config"},
	"internal/gctune":     {},
	"internal/sdnotify":   {},
	"internal/osservice":  {},
	"internal/atomicfile": {},
	"cmd/gateway": {
		"backends", "catalog", "gateway", "internal/activity", "internal/adminapi",
		"internal/adminserver", "internal/adminserver/page", "internal/atomicfile",
		"internal/audit", "internal/auditchain",
		"internal/auditfile", "internal/auditlog",
		"internal/callid",
		"internal/config",
		"internal/config/clientimport", "internal/config/pins", "internal/doctor", "internal/gctune",
		"internal/httpserver",
		"internal/keyring",
		"internal/logging", "internal/loginpage", "internal/metrics", "internal/oauthclient", "internal/osservice",
		"internal/peer", "internal/principal", "internal/procgroup", "internal/protocol",
		"internal/ratelimit", "internal/reload", "internal/resourceserver",
		"internal/sdnotify", "internal/secretcmd",
		"internal/text", "internal/tracing", "internal/transport", "internal/wire",
	},
}

// allowedTools is allowedImports for programs and packages that are not part of the product.
var allowedTools = map[string][]string{
	"integration":                {},
	"integration/bench":          {"catalog"},
	"integration/bench/scanners": {"internal/wire"},
	"integration/chaos": {
		"internal/atomicfile", "internal/mcptest/faults", "internal/sse", "internal/wire",
	},
	"integration/windows": {},
	"internal/mcptest": {"internal/transport", "internal/transport/child",
		"internal/wire"},
	"internal/mcptest/faults":      {"internal/wire"},
	"internal/mcptest/faults/stub": {"internal/mcptest/faults"},
	"internal/mcptest/gosource":    {},
	"internal/mcptest/keyringtest": {},
	"internal/mcptest/oidctest":    {},
	"internal/mcptest/otlptest":    {},
	"internal/mcptest/proctest":    {},
}

// allowedModules lists the third-party modules and the packages that may import them outside of
// tests. An empty list: for tests only.
var allowedModules = map[string][]string{
	"github.com/chromedp/cdproto":           {},
	"github.com/chromedp/chromedp":          {},
	"github.com/coreos/go-oidc":             {},
	"github.com/fsnotify/fsnotify":          {"internal/reload"},
	"github.com/go-jose/go-jose":            {"internal/mcptest/oidctest", "internal/resourceserver"},
	"github.com/go-viper/mapstructure":      {"internal/config"},
	"github.com/google/go-cmp":              {},
	"github.com/google/jsonschema-go":       {},
	"github.com/hashicorp/go-retryablehttp": {"internal/transport/httpclient"},
	"github.com/joho/godotenv":              {"internal/config"},
	"github.com/kardianos/service":          {"internal/osservice"},
	"github.com/klauspost/compress":         {"internal/auditfile", "internal/auditlog"},
	"github.com/knadh/koanf":                {"internal/config"},
	"github.com/mark3labs/mcp-go/mcp": {"backends", "cmd/gateway", "gateway",
		"internal/demo", "internal/protocol"},
	"github.com/mark3labs/mcp-go":                    {},
	"github.com/modelcontextprotocol/go-sdk/oauthex": {"internal/oauthclient"},
	"github.com/modelcontextprotocol/go-sdk":         {},
	"github.com/pelletier/go-toml":                   {"internal/config/clientimport"},
	"github.com/prometheus/client_golang":            {"internal/metrics"},
	"github.com/rogpeppe/go-internal":                {},
	"github.com/spf13/cobra":                         {"cmd/gateway"},
	"github.com/spf13/pflag":                         {"cmd/gateway"},
	"github.com/yosida95/uritemplate":                {"catalog"},
	"github.com/zalando/go-keyring":                  {"internal/keyring"},
	"github.com/zitadel/oidc":                        {},
	"golang.org/x/oauth2":                            {"internal/oauthclient"},
	"go.yaml.in/yaml": {
		"internal/config", "internal/config/clientimport", "internal/config/internal/dialect",
		"internal/config/internal/node", "internal/config/pins",
	},
	"golang.org/x/sync": {"backends"},
	"golang.org/x/sys": {"cmd/gateway", "internal/adminapi", "integration/bench", "internal/doctor",
		"internal/procgroup",
		"internal/sdnotify", "internal/transport"},
	"golang.org/x/term": {"cmd/gateway", "internal/reload"},
	"golang.org/x/time": {"backends/internal/loglimit", "internal/ratelimit",
		"internal/resourceserver"},
	"golang.org/x/tools":                            {"internal/mcptest"},
	"go.opentelemetry.io/otel":                      {"internal/tracing"},
	"go.opentelemetry.io/proto":                     {"internal/mcptest/otlptest"},
	"google.golang.org/protobuf/encoding/protowire": {"internal/tracing"},
	"google.golang.org/protobuf":                    {"internal/mcptest/otlptest"},
}

// allowedTestModules lists the packages whose tests may import a module that is the other side of a
// conversation, or large. Tests of other packages use it through these, or not at all.
var allowedTestModules = map[string][]string{
	"github.com/modelcontextprotocol/go-sdk": {
		"backends", "gateway", "integration", "internal/httpserver", "internal/mcptest",
		"internal/mcptest/oidctest", "internal/protocol",
		"internal/transport/httpclient",
	},
	"github.com/mark3labs/mcp-go/client": {"integration", "internal/httpserver"},
	"github.com/mark3labs/mcp-go/server": {"integration", "internal/transport/httpclient"},
	"github.com/google/jsonschema-go":    {"integration", "internal/adminserver", "internal/protocol"},
	"github.com/zitadel/oidc":            {"internal/mcptest/oidctest"},
}

// allowedStd lists packages of the standard library that only some packages of the product need. A
// package that is not in a list must not open connections, start processes or decode by reflection.
var allowedStd = map[string][]string{
	"encoding/gob": {},
	"encoding/json": {
		"internal/adminapi", "internal/adminserver",
		"backends", "backends/internal/containers", "catalog", "cmd/gateway", "gateway",
		"gateway/internal/mrtr", "internal/audit", "internal/auditlog", "internal/config",
		"internal/config/internal/node", "internal/config/pins",
		"internal/demo", "internal/logging", "internal/oauthclient", "internal/reload",
		"internal/resourceserver",
		"internal/secrets", "internal/wire",
	},
	"crypto/tls": {
		"cmd/gateway", "internal/httpserver", "internal/oauthclient", "internal/reload",
		"internal/tracing", "internal/transport/httpclient",
	},
	"flag": {},
	"log":  {"internal/config", "internal/logging"},
	"net": {
		"internal/adminapi", "internal/adminserver",
		"cmd/gateway", "internal/config", "internal/httpserver", "internal/oauthclient",
		"internal/resourceserver", "internal/sdnotify",
		"internal/secrets", "internal/tracing", "internal/transport/http1",
		"internal/transport/httpclient", "internal/weburl",
	},
	"net/http": {"internal/adminapi", "internal/adminserver", "internal/adminserver/page", "backends", "cmd/gateway", "internal/httpserver", "internal/loginpage", "internal/metrics",
		"internal/oauthclient", "internal/resourceserver", "internal/tracing",
		"internal/transport/http1", "internal/transport/httpclient"},
	"os/exec": {"internal/config/internal/dialect", "internal/doctor", "internal/loginpage", "internal/osservice", "internal/procgroup",
		"internal/secretcmd",
		"internal/transport/child"},
	"os/signal": {"cmd/gateway", "internal/procgroup"},
	"plugin":    {},
	"reflect":   {"backends", "internal/config"},
	"regexp": {"catalog", "internal/config", "internal/config/clientimport",
		"internal/lazy"},
	"runtime/pprof": {"cmd/gateway"},
	"syscall": {
		"internal/adminapi", "internal/auditfile", "internal/auditlog",
		"cmd/gateway", "internal/config", "internal/filelock", "internal/httpserver",
		"internal/oauthclient", "internal/procgroup",
		"internal/reload", "internal/resourceserver", "internal/transport",
		"internal/transport/child", "internal/transport/http1", "internal/transport/httpclient",
	},
	"testing": {},
	"unsafe":  {"internal/procgroup", "internal/transport"},
}

// testImports are the packages of this module that each test may import, in addition to what its
// own package may.
var testImports = []string{
	"internal/mcptest", "internal/mcptest/faults", "internal/mcptest/gosource",
	"internal/mcptest/keyringtest", "internal/mcptest/oidctest", "internal/mcptest/otlptest",
	"internal/mcptest/proctest",
}

// extraTestImports are further packages that the tests of a package may import.
var extraTestImports = map[string][]string{
	"internal/metrics": {"catalog", "gateway", "internal/callid", "internal/protocol"},
	"docs":             {"internal/config"},
	"gateway": {"backends", "internal/config", "internal/config/pins",
		"internal/oauthclient", "internal/tracing"},
	"internal/activity":   {"catalog", "internal/callid", "internal/wire"},
	"internal/tracing":    {"catalog"},
	"internal/audit":      {"internal/logging"},
	"internal/auditlog":   {"internal/callid"},
	"internal/httpserver": {"internal/peer"},
	"internal/peer":       {"internal/transport/child"},
}

func TestTopLevel(t *testing.T) {
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !slices.Contains(topLevel, e.Name()) {
			t.Errorf("%s does not belong at the top level: see topLevel", e.Name())
		}
	}
}

func TestImports(t *testing.T) {
	used := make(map[[2]string]bool)
	for _, f := range gosource.Files(t) {
		allowed, isProduct := allowedImports[f.Dir]
		if !isProduct {
			var known bool
			if allowed, known = allowedTools[f.Dir]; !known && !f.IsTest() {
				t.Errorf("%s: package %s has no entry in allowedImports", f.Path, f.Dir)
				continue
			}
		}
		for _, spec := range f.Syntax.Imports {
			target, _ := strconv.Unquote(spec.Path.Value)
			where := f.Position(spec.Pos())
			if ours, ok := strings.CutPrefix(target, "mcpgateway/"); ok {
				if !f.IsTest() {
					used[[2]string{f.Dir, ours}] = true
				}
				if !slices.Contains(allowed, ours) && !(f.IsTest() && testMayImport(f.Dir, ours)) {
					t.Errorf("%s: package %s must not import %s", where, f.Dir, ours)
				}
				continue
			}
			first, _, _ := strings.Cut(target, "/")
			switch isModule := strings.Contains(first, "."); {
			case isModule && f.IsTest():
				checkModule(t, where, target, f.Dir, allowedTestModules, true)
			case isModule:
				checkModule(t, where, target, f.Dir, allowedModules, !isProduct)
			case isProduct && !f.IsTest():
				if dirs, limited := allowedStd[target]; limited && !slices.Contains(dirs, f.Dir) {
					t.Errorf("%s: package %s must not import %s", where, f.Dir, target)
				}
			}
		}
	}
	for dir, targets := range allowedImports {
		for _, target := range targets {
			if !used[[2]string{dir, target}] {
				t.Errorf("allowedImports has %s for %s, which does not import it", target, dir)
			}
		}
	}
}

func testMayImport(dir, target string) bool {
	return target == dir || strings.HasPrefix(dir, "integration") ||
		slices.Contains(testImports, target) ||
		slices.Contains(extraTestImports[dir], target)
}

// checkModule reports an import of a module by a package that the table does not permit to import
// it. The longest prefix of the import path in the table decides. others = true permits modules
// that are not in the table or have an empty list.
func checkModule(t *testing.T, where, target, dir string, table map[string][]string, others bool) {
	t.Helper()
	module := ""
	for m := range table {
		if strings.HasPrefix(target, m) && len(m) > len(module) {
			module = m
		}
	}
	if module == "" && others {
		return
	}
	if module == "" || !slices.Contains(table[module], dir) &&
		!(others && len(table[module]) == 0) {
		t.Errorf("%s: package %s must not import %s", where, dir, target)
	}
}

// retiredWords are words of earlier names that no identifier and no file name may contain, with the
// terms to use instead.
var retiredWords = map[string]string{
	"anew": "again", "beneath": "say which", "blot": "mask", "crowd": "say which",
	"deed": "say which",
	"door": "httpserver", "era": "generation", "errand": "call", "guest": "statelessClient",
	"guests": "statelessClients", "hasty": "probe", "heard": "received", "hears": "receives",
	"holder": "say which", "house": "say which", "hushed": "queued", "indoors": "stdioOnly",
	"kin":  "children",
	"liar": "misbehaving", "lookout": "watcher", "mended": "repaired", "mends": "repairs",
	"outbox": "writeQueue", "pardon": "reset", "parked": "suspended", "patience": "timeout",
	"rage": "faults", "road": "method", "rumours": "announced",
	"said": "reported", "says": "reports", "seat": "slot", "sour": "failed",
	"stray":  "orphan or ended call",
	"strays": "orphans or ended calls", "stranger": "say which", "tally": "stats",
	"telling": "say which",
	"thrift":  "say which", "told": "notified", "tells": "notifies", "verdict": "decision",
	"wish": "reason",
}

// A case id, such as F_DOOR_1, in the name of a test is not a word.
var caseID = regexp.MustCompile(`_F_[A-Z]+_\d+`)

// keyNames are identifiers that have the name of a configuration key.
var keyNames = map[string]bool{"Outbox": true}

func TestNoRetiredWords(t *testing.T) {
	for _, f := range gosource.Files(t) {
		base := strings.TrimSuffix(strings.TrimSuffix(path.Base(f.Path), ".go"), "_test")
		for _, word := range words(base) {
			if term, retired := retiredWords[word]; retired {
				t.Errorf("%s: the file name has the retired word %q (%s)", f.Path, word, term)
			}
		}
		for name, pos := range declared(f.Syntax) {
			for _, word := range words(caseID.ReplaceAllString(name, "")) {
				if term, retired := retiredWords[word]; retired && !keyNames[name] {
					t.Errorf("%s: %s has the retired word %q (%s)", f.Position(pos), name, word,
						term)
				}
			}
		}
	}
}

// declared returns the identifiers that a file declares, each with one position.
func declared(file *ast.File) map[string]token.Pos {
	names := make(map[string]token.Pos)
	add := func(ids ...*ast.Ident) {
		for _, id := range ids {
			names[id.Name] = id.Pos()
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			add(n.Name)
		case *ast.TypeSpec:
			add(n.Name)
		case *ast.ValueSpec:
			add(n.Names...)
		case *ast.Field:
			add(n.Names...)
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				for _, e := range n.Lhs {
					if id, ok := e.(*ast.Ident); ok {
						add(id)
					}
				}
			}
		case *ast.RangeStmt:
			for _, e := range []ast.Expr{n.Key, n.Value} {
				if id, ok := e.(*ast.Ident); ok && n.Tok == token.DEFINE {
					add(id)
				}
			}
		}
		return true
	})
	return names
}

// words splits an identifier or file name into words, in lower case.
func words(name string) (list []string) {
	runes := []rune(name)
	start := 0
	flush := func(end int) {
		if end > start {
			list = append(list, strings.ToLower(string(runes[start:end])))
		}
		start = end
	}
	for i, r := range runes {
		switch {
		case r == '_' || r == '.':
			flush(i)
			start = i + 1
		case i > start && unicode.IsUpper(r) &&
			(!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])):
			flush(i)
		case i > start && unicode.IsDigit(r) != unicode.IsDigit(runes[i-1]):
			flush(i)
		}
	}
	flush(len(runes))
	return list
}

// sharedTypeNames are the names of types that several packages have on purpose: the same role in
// each.
var sharedTypeNames = map[string]string{
	"backend":      "a backend, and its configuration",
	"clienttls":    "certificates of a client, as configured and as used",
	"error":        "the error type of its package",
	"history":      "what has happened to a backend, under one name in two packages",
	"inputrequest": "a backend's request for input, as data and in flight",
	"options":      "the parameters of New",
	"outcome":      "the end of a call, and its audit record",
	"state":        "the state of a backend, under one name in two packages",
}

// One type name has one meaning in the product, and no two names of types differ only in case.
func TestTypeNamesAreUnique(t *testing.T) {
	where := make(map[string]map[string]bool) // lower case name → places
	for _, f := range gosource.Files(t) {
		if _, isProduct := allowedImports[f.Dir]; !isProduct || f.IsTest() {
			continue
		}
		for _, d := range f.Syntax.Decls {
			types, ok := d.(*ast.GenDecl)
			if !ok || types.Tok != token.TYPE {
				continue
			}
			for _, spec := range types.Specs {
				name := spec.(*ast.TypeSpec).Name.Name
				key := strings.ToLower(name)
				if where[key] == nil {
					where[key] = make(map[string]bool)
				}
				where[key][f.Dir+"."+name] = true
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(where)) {
		if _, shared := sharedTypeNames[key]; len(where[key]) > 1 && !shared {
			t.Errorf("one name for several types: %s",
				strings.Join(slices.Sorted(maps.Keys(where[key])), ", "))
		}
	}
}

// TestLinkedPackages checks that the program does not link large libraries that its dependencies
// could bring along. docs/decisions/052 gives their sizes.
func TestLinkedPackages(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "./cmd/gateway").Output()
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.FieldsSeq(string(out)) {
		for _, large := range []string{"google.golang.org/grpc", "go.opentelemetry.io/proto"} {
			if name == large || strings.HasPrefix(name, large+"/") {
				t.Errorf("cmd/gateway links %s", name)
			}
		}
	}
}
