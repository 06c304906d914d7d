package config

import (
	"strings"
	"testing"
)

func TestLiteralValues_F_CFG_1(t *testing.T) {
	text := `backends:
- {name: a, command: x, args: ["~/notes", "~", "a~/b", "~other/c"], env: {TOKEN: "op://vault/item", OTHER: "${OP}"}}
`
	loaded, err := load(source{path: "g.yaml", data: []byte(text)}, Options{
		Env: lookup(map[string]string{"HOME": "/home/u", "OP": "op://x"}),
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(loaded.Config.Backends[0].Args, " "); got != "/home/u/notes ~ a~/b ~other/c" {
		t.Errorf("args: %s", got)
	}
	if w := loaded.Warnings; len(w) != 1 || !strings.Contains(w[0], `backend "a": env.TOKEN: op://… is sent as it is written`) {
		t.Errorf("%q", w)
	}
}
