package config

import (
	"strings"
	"testing"
)

// Tokens, headers, variables and passwords are not shown.
func TestValuesHaveNoSecrets(t *testing.T) {
	c := loadText(t, `state: /s
listen: 127.0.0.1:7420
auth: {tokens: [{token: hunter2hunter2-a, name: alice}, hunter2hunter2-b]}
otel: {endpoint: "http://u:hunter2hunter2@h/", headers: {x: hunter2hunter2}}
log: {level: debug}
backends:
- {name: a, url: "http://u:hunter2hunter2@h/?key=hunter2hunter2", headers: {x: hunter2hunter2}}
- {name: b, command: x, env: {K: hunter2hunter2}, call_timeout: 5s}
`)
	var text strings.Builder
	for _, v := range Values(c) {
		text.WriteString(v.Key + "=" + v.Value + "\n")
	}
	for _, b := range c.Backends {
		for _, v := range b.Values() {
			text.WriteString(b.Name + "." + v.Key + "=" + v.Value + "\n")
		}
	}
	if strings.Contains(text.String(), "hunter2") {
		t.Errorf("%s", &text)
	}
	for _, want := range []string{"log.level=debug\n", "auth.tokens=alice, token 2\n",
		"listen=127.0.0.1:7420\n", "b.env.K=***\n", "b.call_timeout=5s\n"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is missing in\n%s", want, &text)
		}
	}
}
