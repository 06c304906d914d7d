package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"mcpgateway/catalog"
	"mcpgateway/internal/logging"
)

func TestNameRecord_F_CLI_6(t *testing.T) {
	var want catalog.Assignments
	for k := range want {
		want[k] = map[string]catalog.Assignment{
			fmt.Sprintf("x<%d>\n", k): {Backend: "a", Original: "ü"},
			"y":                       {Backend: "b"},
		}
	}
	dir := t.TempDir()
	source := filepath.Join(dir, "gateway.yaml")
	path := nameRecordPath(dir, source)
	if other := nameRecordPath(dir, source+"2"); other == path {
		t.Errorf("two configurations have one record, %s", path)
	}
	if none, err := readNameRecord(path); err != nil ||
		!reflect.DeepEqual(none, catalog.Assignments{}) {
		t.Errorf("without a record: %v, %v", none, err)
	}
	text, err := encodeNameRecord(source, want)
	if err != nil {
		t.Fatal(err)
	}
	if err := (output{path: path, force: true}).write(text); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil ||
		info.Mode().Perm() != 0o600 && runtime.GOOS != "windows" {
		t.Errorf("%v, %v", info, err)
	}
	got, err := readNameRecord(path)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
}

// A damaged record, or a directory in its place, is an error, and the result contains no names.
// Without a state directory the result contains no names either, and there is no error.
func TestDamagedNameRecord_F_CLI_6(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.json")
	for _, text := range [][]byte{nil, {0}, []byte("[]"), []byte("{}"), []byte(`{"version":2}`),
		[]byte(`{"version":1,"names":{"tools":[]}}`),
		[]byte(`{"version":1,"names":{"tools":{"x":{"backend":"a"}}}`),
		bytes.Repeat([]byte(" "), maxNameRecord+1)} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if all, err := readNameRecord(path); err == nil ||
			!reflect.DeepEqual(all, catalog.Assignments{}) {
			t.Errorf("%.80q: %v, %v", text, all, err)
		}
	}
	if _, err := readNameRecord(dir); err == nil {
		t.Error("a directory is read")
	}
	if all, err := readNameRecord(""); err != nil ||
		!reflect.DeepEqual(all, catalog.Assignments{}) {
		t.Errorf("no state directory: %v, %v", all, err)
	}
}

func TestTransfersAreBoundedInCheck_F_CLI_6(t *testing.T) {
	mask := logging.NewMask("hush-hush-hush")
	if lines := transferLines(mask, nil); lines != nil {
		t.Errorf("nothing has changed: %q", lines)
	}
	moves := []catalog.Move{
		{Kind: catalog.Resources, Name: "x:hush-hush-hush\x1b[2J", From: "a", To: "b"},
	}
	for i := range 24 {
		moves = append(moves, catalog.Move{Kind: catalog.Tools, Name: "read",
			From: fmt.Sprint("a", i), To: "b"})
	}
	lines := transferLines(mask, moves)
	if len(lines) != maxTransfers+2 || !strings.Contains(lines[maxTransfers], "5 more") ||
		!strings.Contains(lines[maxTransfers+1], "catalog.prefix") {
		t.Errorf("%q", lines)
	}
	if strings.Contains(lines[0], "hush") || strings.Contains(lines[0], "\x1b") ||
		!strings.HasPrefix(lines[0], "resource x:") {
		t.Errorf("%q", lines[0])
	}
	if want := "tool read: belongs to b, and belonged to a0 in the last run"; lines[1] != want {
		t.Errorf("%q, want %q", lines[1], want)
	}
}
