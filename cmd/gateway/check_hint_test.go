package main

import (
	"errors"
	"testing"

	"mcpgateway/backends"
)

// A login does not need the output of programs.
func TestCheckHintIsAboutWhatFailed(t *testing.T) {
	const output = "gateway check --log-level debug also shows the output of the programs"
	ok := backends.Status{Name: "ok", State: backends.Ready, Settled: true, Listed: true}
	login := backends.Status{Name: "notes", State: backends.NeedsLogin, Err: errors.New("x")}
	misconfigured := backends.Status{Name: "m", State: backends.Misconfigured, Err: errors.New("x")}
	failed := backends.Status{Name: "f", State: backends.BackingOff, Err: errors.New("x")}
	for _, test := range []struct {
		all  []backends.Status
		want string
	}{
		{[]backends.Status{ok, login}, "gateway login notes"},
		{[]backends.Status{login, misconfigured}, "gateway login notes"},
		{[]backends.Status{login, ok, login},
			"gateway login NAME, for each backend that needs a login"},
		{[]backends.Status{misconfigured}, ""},
		{[]backends.Status{ok, failed}, output},
		{[]backends.Status{login, failed}, output},
		{[]backends.Status{failed, login}, output},
	} {
		if got := checkHint(test.all); got != test.want {
			t.Errorf("%v: %q, want %q", test.all, got, test.want)
		}
	}
}
