package config

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMisspeltVariables_F_CLI_9(t *testing.T) {
	text := "backends: [{name: a, command: x, args: [\"${GATEWAY_LOG_LEVE}\"]}]"
	loaded, err := load(source{path: "g.yaml", data: []byte(text)}, Options{
		Env: lookup(map[string]string{"GATEWAY_LOG_LEVE": "x"}),
		VariableNames: []string{"GATEWAY_LOG_LEVL", "GATEWAY_LOG_LEVE", "GATEWAY_LOG_LEVEL",
			"GATEWAY_TOKEN", "GATEWAY_CONFG", "LOG_LEVL"},
	})
	want := []string{
		"GATEWAY_CONFG: the variable has no effect; did you mean GATEWAY_CONFIG?",
		"GATEWAY_LOG_LEVL: the variable has no effect; did you mean GATEWAY_LOG_LEVEL?",
	}
	if err != nil || !slices.Equal(loaded.Warnings, want) {
		t.Errorf("%q %v", loaded.Warnings, err)
	}
}

// If a variable or flag stands for a key that neither can set, the warning contains the place of
// the key.
func TestVariablesOfUnsettableKeys(t *testing.T) {
	const inFile = "; write it into the configuration file, where ${VARIABLE} stands for the value of a variable"
	names := map[string]string{
		"GATEWAY_AUTH_TOKENS":         "auth.tokens cannot be set by a variable" + inFile,
		"GATEWAY_AUTH_TOKENS_0":       "auth.tokens cannot be set by a variable" + inFile,
		"GATEWAY_AUTH__TOKENS":        "auth.tokens cannot be set by a variable" + inFile,
		"GATEWAY_AUTH_TOKEN":          "auth.tokens cannot be set by a variable" + inFile,
		"GATEWAY_TOKENS":              "auth.tokens cannot be set by a variable" + inFile,
		"GATEWAY_ORIGINS":             "origins cannot be set by a variable" + inFile,
		"GATEWAY_HOSTS":               "hosts cannot be set by a variable" + inFile,
		"GATEWAY_BACKENDS":            "backends cannot be set by a variable" + inFile,
		"GATEWAY_BACKENDS_0_URL":      "backends cannot be set by a variable" + inFile,
		"GATEWAY_BACKENDS_GH_ENV_KEY": "backends cannot be set by a variable" + inFile,
		"GATEWAY_MCPSERVERS":          "backends cannot be set by a variable" + inFile,
		"GATEWAY_AUTH": "auth has several keys and cannot be set by a variable as a whole" + inFile +
			", or set each key, as in GATEWAY_AUTH_PUBLIC_URL",
		"GATEWAY_LOG": "log has several keys and cannot be set by a variable as a whole" + inFile +
			", or set each key, as in GATEWAY_LOG_LEVEL",
		"GATEWAY_ENV_KEY":    "env is a key of each backend and cannot be set by a variable; write it into the entry of the backend in the configuration file",
		"GATEWAY_TOOLS_DENY": "tools.deny is a key of each backend and cannot be set by a variable; write it into the entry of the backend in the configuration file",
		"GATEWAY_CALL_TIMEOUT": "call_timeout is a key of each backend and cannot be set by a variable; write it into the entry of the backend " +
			"in the configuration file, or set GATEWAY_DEFAULTS_CALL_TIMEOUT for all backends",
	}
	var want []string
	for name, problem := range names {
		want = append(want, name+": the variable has no effect: "+problem)
	}
	slices.Sort(want)
	others := []string{"GATEWAY_TOKEN", "GATEWAY_PORT", "GATEWAY_URL", "GATEWAY_HEADERS",
		"GATEWAY_ARGS", "GATEWAY_DEFAULTS_CALL_TIMEOUT"}
	text := "backends: [{name: a, command: x, args: [\"${GATEWAY_ARGS}\"], inherit_env: [GATEWAY_HEADERS]}]"
	loaded, err := load(source{path: "g.yaml", data: []byte(text)}, Options{
		Env: lookup(map[string]string{"GATEWAY_ARGS": "x",
			"GATEWAY_AUTH_TOKENS": "hunter"}),
		VariableNames: slices.Concat(slices.Collect(maps.Keys(names)), others),
	})
	if err != nil {
		t.Fatal(err)
	}
	got := slices.Clone(loaded.Warnings)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestFlagHint(t *testing.T) {
	for flag, want := range map[string]string{
		"auth-tokens":           "auth.tokens cannot be set by a flag or a variable",
		"audit.file":            "audit.file has no flag: write it into the configuration file, or set GATEWAY_AUDIT_FILE",
		"defaults-call-timeout": "GATEWAY_DEFAULTS_CALL_TIMEOUT",
		"call-timeout":          "GATEWAY_DEFAULTS_CALL_TIMEOUT",
		"backends":              "write it into the configuration file",
	} {
		if got := FlagHint(flag); !strings.Contains(got, want) {
			t.Errorf("--%s: %q", flag, got)
		}
	}
	if got := FlagHint("nothing-like-it"); got != "" {
		t.Errorf("%q", got)
	}
}

// An unknown key that is a key of one other struct of the entry is found there.
func TestKeyOfTheWrongLevel(t *testing.T) {
	const head = "backends:\n- name: a\n  url: http://x\n  "
	for text, want := range map[string]string{
		head + "per: principal":     `per: unknown key (did you mean "oauth.per"?)`,
		head + "scopes: [a]":        `scopes: unknown key (did you mean "oauth.scopes"?)`,
		"level: debug":              `level: unknown key (did you mean "log.level"?)`,
		head + "allow: [a]":         `allow: unknown key`, // tools.allow, prompts.allow, ...
		head + "nothing_like_it: a": `nothing_like_it: unknown key`,
	} {
		_, err := load(source{path: "g.yaml", data: []byte(text)}, Options{Env: lookup(nil)})
		if err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
