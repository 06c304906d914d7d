package config

import (
	"slices"
	"testing"
)

func TestMisspeltVariables_F_CLI_9(t *testing.T) {
	text := "backends: [{name: a, command: x, args: [\"${GATEWAY_LOG_LEVE}\"]}]"
	loaded, err := load(source{path: "g.yaml", data: []byte(text)}, Options{
		Env:   lookup(map[string]string{"GATEWAY_LOG_LEVE": "x"}),
		Names: []string{"GATEWAY_LOG_LEVL", "GATEWAY_LOG_LEVE", "GATEWAY_LOG_LEVEL", "GATEWAY_TOKEN", "GATEWAY_CONFG", "LOG_LEVL"},
	})
	want := []string{
		"GATEWAY_CONFG: the variable has no effect; did you mean GATEWAY_CONFIG?",
		"GATEWAY_LOG_LEVL: the variable has no effect; did you mean GATEWAY_LOG_LEVEL?",
	}
	if err != nil || !slices.Equal(loaded.Warnings, want) {
		t.Errorf("%q %v", loaded.Warnings, err)
	}
}
