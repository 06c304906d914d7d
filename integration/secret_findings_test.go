//go:build unix

package integration

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"go/ast"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"mcpgateway/internal/mcptest/gosource"
	"mcpgateway/internal/mcptest/oidctest"
)

// plant returns a search with one secret, whose value is also returned.
func plant(place secretPlace) (*secretSearch, string) {
	s, value := newSecretSearch(), newSecretValue()
	s.add(value, &knownSecret{"TestOfAnother", "token of a client", place})
	return s, value
}

// The search finds each form of a secret in each place. Without this test, a run without findings
// would prove nothing.
func TestSecretSearch_FindsEachForm(t *testing.T) {
	t.Parallel()
	const special = "p\u00e4ss w\"ord&<1>/2+3=4\\5"
	signed := "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJlLW9mLXRoaXMtdG9rZW4"
	s := newSecretSearch()
	for _, value := range []string{special, signed} {
		s.add(value, &knownSecret{"T", value, nowhere})
	}
	inJSON := func(v any) string {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	signature := signed[strings.LastIndexByte(signed, '.')+1:]
	for form, text := range map[string]string{
		"itself": special, "beginning": special[:partLength], "end": special[len(special)-partLength:],
		"in JSON": inJSON(special), "in JSON in JSON": inJSON(inJSON(special)),
		"quoted": fmt.Sprintf("%q", special), "in a query": url.QueryEscape(special),
		"in a path": url.PathEscape(special), "in hexadecimal digits": fmt.Sprintf("%x", special),
		"in base64":                    base64.StdEncoding.EncodeToString([]byte(special)),
		"user:password in base64":      base64.StdEncoding.EncodeToString([]byte("me:" + special)),
		"after 4 bytes in base64":      base64.URLEncoding.EncodeToString([]byte("user" + special)),
		"after 5 bytes in base64":      base64.RawURLEncoding.EncodeToString([]byte("user:" + special)),
		"a JWT":                        signed,
		"the signature of a JWT":       signature,
		"the beginning of a signature": signature[:partLength],
	} {
		found := s.searchText("log", []byte("some text: "+text+" and more"))
		if len(found) != 1 {
			t.Errorf("%s: %d findings in %s", form, len(found), text)
		}
	}
	for _, text := range []string{"", "p", "nothing", special[:partLength-1], signed[:40]} {
		if found := s.searchText("log", []byte(text)); len(found) != 0 {
			t.Errorf("found in %q: %v", text, found)
		}
	}
}

// Files that have secrets on purpose are not searched, but must be readable for their owner only.
func TestSecretSearch_Files(t *testing.T) {
	t.Parallel()
	s, value := plant(nowhere)
	dir := t.TempDir()
	write := func(path, text string, mode os.FileMode) {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	const stored = "stored-refresh-token"
	write("gateway.yaml", value, 0o644)
	write("mine.env", value, 0o600)
	s.addInput(filepath.Join(dir, "mine.env"))
	write("state/logins/a.json", `{"secrets":{"refresh_token":"`+stored+`"}}`, 0o600)
	write("state/token", value, 0o600)
	write("keyrings/login.keyring", value, 0o600)
	write("log", "harmless", 0o644)
	if found := s.searchFiles("T", dir); len(found) != 0 {
		t.Errorf("found %v", found)
	}
	write("state/logins/b.json", value, 0o640)
	write("state/cache/c.json", "before "+value, 0o600)
	write("audit.jsonl", `{"text":"`+stored+`"}`, 0o600)
	write("other/token", value, 0o600)
	found := fmt.Sprint(s.searchFiles("T", dir))
	for _, want := range []string{"b.json: a file with secrets has the mode -rw-r-----",
		`cache/c.json: contains the secret "token of a client" of TestOfAnother, in a line that begins with "before "`,
		`audit.jsonl: contains the secret "refresh_token stored in a.json" of T`, "other/token: "} {
		if !strings.Contains(found, want) {
			t.Errorf("not found: %s", want)
		}
	}
	if n := strings.Count(found, dir); n != 4 || strings.Contains(found, value) {
		t.Errorf("%d findings, which may not contain the value: %s", n, found)
	}
}

// A secret in the command line or the environment of a process fails the run, with the name of the
// secret and of its test.
func TestSecretSearch_ProcessesFailTheRun(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux shows the processes in /proc")
	}
	arguments, inArgs := plant(inEnvironment)
	environment, inEnv := plant(nowhere)
	permitted, also := plant(inArguments)
	sampler, err := startProcessSampler(t.TempDir(), "TOKEN="+inEnv)
	if err != nil {
		t.Fatal(err)
	}
	defer sampler.stop()
	cmd := exec.Command("sh", "-c", "read -r line", "sh", inArgs, also)
	cmd.Env = []string{"TOKEN=" + inEnv, "OTHER=" + inArgs, "THIRD=" + also}
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	seen := poll(waitTimeout, func() bool {
		commands, environments, _, err := sampler.texts()
		return err == nil && bytes.Contains(commands, []byte(inArgs)) &&
			bytes.Contains(environments, []byte(inEnv))
	})
	stdin.Close()
	if err := cmd.Wait(); err == nil || !seen { // end of file is an error of read
		t.Errorf("%v, seen %v", err, seen)
	}
	for _, c := range []struct {
		search       *secretSearch
		before, want int
		place        string
	}{
		{arguments, 0, 1, "the command line of a process: "},
		{environment, 0, 1, "the environment of a process: "},
		{environment, 2, 2, "the environment of a process: "},
		{permitted, 0, 0, ""},
		{permitted, 2, 2, ""},
	} {
		var lines strings.Builder
		code := c.search.finish(sampler, c.before, func(line string) { lines.WriteString(line) })
		if code != c.want || !strings.HasPrefix(lines.String(), c.place) ||
			strings.Contains(lines.String(), "token of a client") != (c.place != "") ||
			strings.Contains(lines.String(), "TestOfAnother") != (c.place != "") {
			t.Errorf("exit code %d, want %d: %s", code, c.want, &lines)
		}
	}
}

// What an authorization server of a test issues is known, also before the test has read it.
func TestSecretSearch_KnowsIssuedTokens(t *testing.T) {
	t.Parallel()
	p := newProvider(t, oidctest.Options{Opaque: true})
	token := p.IssueToken(oidctest.TokenSpec{User: "ann"})
	if found := everySecret.searchText("log", []byte("Bearer "+token)); len(found) != 1 {
		t.Errorf("found %v", found)
	}
}

// The output of each command of the gateway is searched, and each authorization server is known,
// because all tests use the helpers for them.
func TestSecretSearch_IsUsedByAllTests(t *testing.T) {
	t.Parallel()
	command := regexp.MustCompile(`exec\.Command(Context)?\([^\n]*gateway\(`)
	output := regexp.MustCompile(`\b[a-z]{2,}\.(CombinedOutput|Output)\(`) // not t.Output
	commands := 0
	for _, f := range gosource.Files(t) {
		if f.Dir != "integration" {
			continue
		}
		for _, d := range f.Syntax.Decls {
			function, ok := d.(*ast.FuncDecl)
			if !ok || function.Name.Name == "newProvider" || function.Name.Name == "buildGateway" {
				continue
			}
			from, to := f.Set.Position(function.Pos()), f.Set.Position(function.End())
			text := f.Text[from.Offset:to.Offset]
			if bytes.Contains(text, []byte("oidctest"+".New(")) {
				t.Errorf("%s: %s calls oidctest.New instead of newProvider", f.Path, function.Name)
			}
			if command.Match(text) {
				commands++
				if output.Match(text) {
					t.Errorf("%s: %s needs combinedOutput or runCommand, which search the output",
						f.Path, function.Name)
				}
			}
		}
	}
	if commands < 15 {
		t.Errorf("only %d functions start the gateway", commands)
	}
}
