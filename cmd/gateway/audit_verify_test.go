package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mcpgateway/internal/auditfile"
)

// auditVerify runs gateway audit verify and returns its exit code and its output on stdout and
// stderr.
func auditVerify(t *testing.T, args ...string) (code int, text string) {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	code = run(t.Context(), append([]string{"audit", "verify"}, args...), stdio{os.Stdin, out, out})
	b, _ := os.ReadFile(out.Name())
	return code, string(b)
}

// writeAuditFiles writes 12 records to 4 files, and returns the path of the newest and of a
// configuration.
func writeAuditFiles(t *testing.T, chain bool) (path, config string) {
	t.Helper()
	dir := t.TempDir()
	path, config = filepath.Join(dir, "audit.jsonl"), filepath.Join(dir, "gateway.yaml")
	f, err := auditfile.OpenFile(path, auditfile.Options{MaxSize: 400, Chain: chain},
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for i := range 12 {
		fmt.Fprintf(f, `{"time":"2026-01-02T03:04:%02d.000000Z","msg":"call","tool":"t%d"}`+"\n",
			i, i)
	}
	text := fmt.Sprintf("state: none\naudit: {file: %q}\nbackends: [{name: a, command: x}]\n", path)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, config
}

func replaceIn(t *testing.T, file, old, with string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(b), old) {
		t.Fatalf("%s: %v, %s", file, err, b)
	}
	text := strings.Replace(string(b), old, with, 1)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// wants checks that a text contains others.
func wants(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in\n%s", part, text)
		}
	}
}

// verify reads the files of the configuration, or the named files in whatever order, and prints the
// head, with which the next verify notices removed records at the end.
func TestAuditVerify(t *testing.T) {
	path, config := writeAuditFiles(t, true)
	code, text := auditVerify(t, "-c", config)
	if code != exitOK {
		t.Errorf("exit code %d", code)
	}
	wants(t, text, "12 linked records in 4 files, numbers 1 to 12: no record was changed, "+
		"removed or inserted", "head: ", "keep the head elsewhere")
	_, head, _ := strings.Cut(text, "head: ")
	head = head[:64]
	named, err := filepath.Glob(path + "*")
	if err != nil {
		t.Fatal(err)
	}
	if code, text := auditVerify(t, append(named, "--head", head)...); code != exitOK ||
		strings.Contains(text, "elsewhere") {
		t.Errorf("exit code %d:\n%s", code, text)
	}
	var report verifyReport
	code, text = auditVerify(t, "--json", "-c", config)
	if err := json.Unmarshal([]byte(text), &report); err != nil || code != exitOK ||
		report.Head != head || report.Last != 12 || report.Files[3] != path {
		t.Errorf("%d, %v, %+v", code, err, report)
	}
	b, _ := os.ReadFile(path)
	last := strings.LastIndexByte(strings.TrimSuffix(string(b), "\n"), '\n') + 1
	os.WriteFile(path, b[:last], 0o600)
	if code, _ := auditVerify(t, "-c", config); code != exitOK {
		t.Errorf("without --head the end may be removed: exit code %d", code)
	}
	code, text = auditVerify(t, "-c", config, "--head", head)
	if code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	wants(t, text, ": head: no record has the hash "+head, ": 1 problem\n")
}

// verify names the file, the line and the time of what was changed, removed or inserted; the exit
// code is 1.
func TestAuditVerifyFindsChanges(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(path string)
		want   string
	}{
		"changed": {func(path string) { replaceIn(t, path+".2", `"t4"`, `"t9"`) },
			".2:1 (2026-01-02T03:04:04.000000Z): changed: record 5, or the link of record 6"},
		"removed file": {func(path string) { os.Remove(path + ".2") },
			".1:1 (2026-01-02T03:04:07.000000Z): removed: records 5 to 7 were removed before " +
				"record 8"},
		"inserted": {func(path string) {
			replaceIn(t, path+".1", "\n", "\n"+`{"msg":"call","tool":"x"}`+"\n")
		}, ".1:2: inserted: 1 line was inserted after record 8"},
		"damaged file": {func(path string) {
			os.WriteFile(path+".1.gz", nil, 0o600)
			os.Remove(path + ".1")
		}, ".1.gz: unreadable: the file cannot be read to its end: EOF"},
	} {
		path, config := writeAuditFiles(t, true)
		tc.change(path)
		code, text := auditVerify(t, "-c", config)
		if code != exitFailed {
			t.Errorf("%s: exit code %d", name, code)
		}
		wants(t, text, path+tc.want)
	}
}

// At most maxFindings findings are printed, and the others are counted.
func TestAuditVerifyLimitsFindings(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	f, err := auditfile.OpenFile(path, auditfile.Options{Chain: true},
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for range 250 {
		io.WriteString(f, `{"a":1}`+"\n")
	}
	f.Close()
	b, _ := os.ReadFile(path)
	var kept []string
	for i, line := range strings.SplitAfter(string(b), "\n") {
		if i%2 == 0 {
			kept = append(kept, line)
		}
	}
	os.WriteFile(path, []byte(strings.Join(kept, "")), 0o600)
	code, text := auditVerify(t, path)
	if n := strings.Count(text, ": removed: "); code != exitFailed || n != maxFindings {
		t.Errorf("exit code %d, %d findings", code, n)
	}
	wants(t, text, "24 further findings are not shown", "124 problems")
}

// Bad input of verify: each error says what to do.
func TestAuditVerifyErrors(t *testing.T) {
	_, config := writeAuditFiles(t, false)
	dir := t.TempDir()
	inLog, missing := filepath.Join(dir, "log.yaml"), filepath.Join(dir, "missing.yaml")
	os.WriteFile(inLog, []byte("state: none\nbackends: [{name: a, command: x}]\n"), 0o600)
	os.WriteFile(missing, fmt.Appendf(nil, "state: none\naudit: {file: %q}\nbackends: "+
		"[{name: a, command: x}]\n", filepath.Join(dir, "none.jsonl")), 0o600)
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"-c", config}, exitFailed, "hint: with audit.chain: true the gateway links"},
		{[]string{"-c", inLog}, exitFailed, "hint: name the files: gateway audit verify FILE"},
		{[]string{"-c", missing}, exitFailed, "none.jsonl does not exist"},
		{[]string{filepath.Join(dir, "x.jsonl")}, exitFailed, "no such file"},
		{[]string{"--head", "abc", inLog}, exitUsage, "--head: a head is 64 hexadecimal digits"},
	} {
		code, text := auditVerify(t, tc.args...)
		if code != tc.code {
			t.Errorf("%q: exit code %d\n%s", tc.args, code, text)
		}
		wants(t, text, tc.want)
	}
}
