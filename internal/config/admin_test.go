package config

import (
	"strings"
	"testing"
)

func TestAdminListen(t *testing.T) {
	for text, want := range map[string]string{
		"admin: {listen: nonsense}":           "admin.listen: must be host:port",
		"admin: {listen: \"127.0.0.1:http\"}": "admin.listen: must end in a port",
		"listen: 127.0.0.1:1\nadmin: {listen: 127.0.0.1:1}": "admin.listen: is the same " +
			"address as listen",
		"state: none\nadmin: {listen: 127.0.0.1:1}": "admin.listen: needs a state directory",
		"admin: {lisen: 127.0.0.1:1}":               "unknown key",
		"admin: 127.0.0.1:1":                        "admin: must be",
	} {
		_, err := load(source{path: "g.yaml", data: []byte(text + "\nbackends: []")},
			Options{Env: lookup(nil)})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	l := loadText(t, "state: /s\nadmin: {listen: \":0\"}\nlisten: 127.0.0.1:0\nbackends: []")
	if l.Admin.Listen != ":0" || l.Admin.Loopback() {
		t.Errorf("%+v", l.Admin)
	}
	next := loadText(t, "state: /s\nadmin: {listen: 127.0.0.1:7}\nlisten: 127.0.0.1:0\nbackends: []")
	if got := Diff(l, next).NeedRestart; len(got) != 1 || got[0] != "admin.listen" {
		t.Errorf("%q", got)
	}
	if !next.Admin.Loopback() {
		t.Error("not loopback")
	}
}
