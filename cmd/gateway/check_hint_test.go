package main

import (
	"errors"
	"testing"

	"mcpgateway/backends"
)

// A login does not need the output of programs.
func TestCheckHintIsAboutWhatFailed(t *testing.T) {
	const output = "gateway check --log-level debug also shows the output of the programs"
	const checkURL = "check the url of each backend that failed, and that its server runs"
	ok := backends.Status{Name: "ok", State: backends.Ready, Settled: true, Listed: true}
	login := backends.Status{Name: "notes", State: backends.NeedsLogin, Err: errors.New("x")}
	misconfigured := backends.Status{Name: "m", State: backends.Misconfigured, Err: errors.New("x")}
	failed := backends.Status{Name: "f", State: backends.BackingOff, Err: errors.New("x")}
	web := backends.Status{Name: "web", State: backends.BackingOff, Err: errors.New("x")}
	isProgram := func(name string) bool { return name != "web" }
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
		{[]backends.Status{ok, web}, checkURL},
		{[]backends.Status{login, web}, checkURL},
		{[]backends.Status{web, login}, checkURL},
		{[]backends.Status{web, failed}, output},
	} {
		if got := checkHint(test.all, isProgram); got != test.want {
			t.Errorf("%v: %q, want %q", test.all, got, test.want)
		}
	}
}
