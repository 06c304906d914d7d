package main

import (
	"encoding/json"
	"runtime/debug"
	"strings"
	"testing"
)

func TestVersionHasCommitAndDate(t *testing.T) {
	b := ownBuild()
	b.Commit, b.Date, b.Modified = "", "", false
	b.addSettings([]debug.BuildSetting{
		{Key: "vcs.revision", Value: "802b63a0c1d2e3f4a5b6c7d8e9f00112233445566"},
		{Key: "vcs.time", Value: "2026-11-30T23:42:01Z"}, {Key: "vcs.modified", Value: "true"},
	})
	want := "gateway " + version + " 802b63a0c1d2+dirty of 2026-11-30T23:42:01Z (go"
	if got := b.String(); !strings.HasPrefix(got, want) {
		t.Errorf("%s\nwant %s", got, want)
	}
	b.Modified = false
	if strings.Contains(b.String(), "dirty") {
		t.Error(b.String())
	}
}

func TestVersionAsJSON(t *testing.T) {
	code, text, _ := runCommand(t, "version", "--json")
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	var got build
	if err := json.Unmarshal([]byte(text), &got); err != nil || got != ownBuild() {
		t.Errorf("%v: %s", err, text)
	}
}
