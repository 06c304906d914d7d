package config

import (
	"slices"
	"strings"
	"testing"
)

// All header values for the receiver of traces are secrets, and so are the secrets in its URL.
func TestOTelSecrets(t *testing.T) {
	c := loadText(t, `
otel:
  endpoint: http://h/?api_key=kkkk1234kkkk
  headers: { Authorization: "Bearer tttt1234", x-plain: plain-word }
backends: [{name: a, embedded: demo}]`)
	all := Secrets(c)
	for _, want := range []string{"Bearer tttt1234", "tttt1234", "plain-word", "kkkk1234kkkk"} {
		if !slices.Contains(all, want) {
			t.Errorf("%q is not among %q", want, all)
		}
	}
}

// gateway trust shows where traces are sent, without secrets.
func TestDescribeOTel(t *testing.T) {
	got := describe(t, `
otel:
  endpoint: https://u:hunter2@h/x?key=hunter2
  headers: { x-key: hunter2 }
backends: [{name: a, embedded: demo}]`)
	for _, want := range []string{"sends traces of calls to: https://u:xxxxx@h/x?…",
		"sends traces with the headers: x-key"} {
		if !strings.Contains(got, want) || strings.Contains(got, "hunter2") {
			t.Errorf("no %q in %s", want, got)
		}
	}
	if got := describe(t, "otel: {endpoint: none}\nbackends: []"); strings.Contains(got, "traces") {
		t.Errorf("got %s", got)
	}
}

// The running gateway keeps its receiver and headers until it is restarted.
func TestReloadOfOTel(t *testing.T) {
	old := loadText(t, "otel: {endpoint: http://a, headers: {x: old}}\nbackends: [{name: a, embedded: demo}]")
	next := loadText(t, "otel: {sample: 1%, headers: {y: new}}\nbackends: [{name: a, embedded: demo}]")
	changes := Diff(old, next)
	want := []string{"otel.endpoint", "otel.headers.x", "otel.headers.y", "otel.sample"}
	if !slices.Equal(changes.NeedRestart, want) || len(changes.Applied) > 0 {
		t.Errorf("the changes are %+v", changes)
	}
	if got := old.Effective(next, changes).OTel; got.Endpoint != "http://a" || got.Sample != "" ||
		len(got.Headers) != 1 || got.Headers["x"] != "old" {
		t.Errorf("the effective settings are %+v", got)
	}
}
