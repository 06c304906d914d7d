package config

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestPrecedence sets one key in an increasing number of layers: flag over environment over file
// over default.
func TestPrecedence(t *testing.T) {
	file := "log: { level: warn }\ncatalog: { wait: 1s }\n"
	for _, tc := range []struct {
		file  string
		env   string
		flag  string
		level string
	}{
		{"", "", "", "info"},
		{file, "", "", "warn"},
		{file, "error", "", "error"},
		{"", "error", "", "error"},
		{file, "error", "debug", "debug"},
		{file, "", "debug", "debug"},
	} {
		opts := Options{Env: lookup(map[string]string{"GATEWAY_LOG_LEVEL": tc.env,
			"GATEWAY_NONSENSE": "x"})}
		if tc.flag != "" {
			opts.Flags = map[string]string{"log.level": tc.flag}
		}
		loaded, err := load(source{path: "g.yaml", data: []byte(tc.file)}, opts)
		if err != nil {
			t.Fatal(err)
		}
		if got := loaded.Config.Log.Level; got != tc.level {
			t.Errorf("%+v: got %s", tc, got)
		}
		if got := loaded.Config.Catalog.Wait; tc.file != "" && got != time.Second {
			t.Errorf("%+v: the rest of the file is gone: wait is %s", tc, got)
		}
	}
}

// TestEveryKeyHasAVariable lists the documented variables.
func TestEveryKeyHasAVariable(t *testing.T) {
	values := map[string]string{
		"GATEWAY_STATE":               "/s",
		"GATEWAY_INSTRUCTIONS":        "x",
		"GATEWAY_ENV_FILE":            "/vars.env",
		"GATEWAY_LISTEN":              "[::1]:0",
		"GATEWAY_TLS_CERT":            "c.pem",
		"GATEWAY_AUTH_OAUTH_ISSUER":   "https://i.example",
		"GATEWAY_AUTH_OAUTH_AUDIENCE": "https://g.example/mcp",

		"GATEWAY_AUTH_OAUTH_ALLOW_PRIVATE":               "true",
		"GATEWAY_AUTH_OAUTH_INTROSPECTION_CLIENT_ID":     "gateway",
		"GATEWAY_AUTH_OAUTH_INTROSPECTION_CLIENT_SECRET": "hunter2hunter2",

		"GATEWAY_TLS_KEY":                "k.pem",
		"GATEWAY_CATALOG_PREFIX":         "never",
		"GATEWAY_CATALOG_SEPARATOR":      "-",
		"GATEWAY_CATALOG_NAME_LIMIT":     "60",
		"GATEWAY_CATALOG_WAIT":           "5s",
		"GATEWAY_LOG_LEVEL":              "debug",
		"GATEWAY_LOG_FORMAT":             "json",
		"GATEWAY_LOG_STDERR":             "off",
		"GATEWAY_AUDIT_FILE":             "a.jsonl",
		"GATEWAY_AUDIT_PAYLOADS":         "all",
		"GATEWAY_AUDIT_MAX_SIZE":         "1MiB",
		"GATEWAY_AUDIT_MAX_AGE":          "24h",
		"GATEWAY_AUDIT_KEEP_FILES":       "9",
		"GATEWAY_AUDIT_KEEP_AGE":         "720h",
		"GATEWAY_AUDIT_KEEP_SIZE":        "2MiB",
		"GATEWAY_AUDIT_COMPRESS":         "zstd",
		"GATEWAY_AUDIT_CHAIN":            "true",
		"GATEWAY_ADMIN_LISTEN":           "127.0.0.1:7421",
		"GATEWAY_OTEL_ENDPOINT":          "http://127.0.0.1:4318",
		"GATEWAY_OTEL_SAMPLE":            "1%",
		"GATEWAY_LIMITS_MESSAGE":         "1MiB",
		"GATEWAY_LIMITS_IN_FLIGHT":       "7",
		"GATEWAY_LIMITS_PAGE":            "64KiB",
		"GATEWAY_LIMITS_SESSIONS":        "6",
		"GATEWAY_LIMITS_SESSION_IDLE":    "5m",
		"GATEWAY_LIMITS_EVENTS":          "2KiB",
		"GATEWAY_LIMITS_OUTBOX":          "3MiB",
		"GATEWAY_LIMITS_START_PARALLEL":  "5",
		"GATEWAY_LIMITS_DRAIN":           "2s",
		"GATEWAY_DEFAULTS_START_TIMEOUT": "9s",
		"GATEWAY_DEFAULTS_CALL_TIMEOUT":  "8s",
		"GATEWAY_DEFAULTS_LAZY":          "true",
		"GATEWAY_DEFAULTS_IDLE_STOP":     "7s",
		"GATEWAY_DEFAULTS_MAX_IN_FLIGHT": "4",
		"GATEWAY_DEFAULTS_QUEUE_WAIT":    "3s",
		"GATEWAY_AUTH_PUBLIC_URL":        "https://gw.example",
	}
	if got := len(scalarKeys(settingsType)); got != len(values) {
		t.Errorf("%d keys, %d variables", got, len(values))
	}
	loaded, err := load(source{path: "g.yaml", data: []byte("backends: [{name: a, command: x}]")},
		Options{Env: lookup(values)})
	if err != nil {
		t.Fatal(err)
	}
	c := loaded.Config
	b := c.Backends[0]
	got := fmt.Sprintln(c.State, c.Listen, c.Auth.PublicURL, c.Auth.OAuth, c.TLS, c.Catalog, c.Log,
		c.Audit, c.Limits,
		b.StartTimeout, b.CallTimeout, b.Lazy, b.IdleStop, b.MaxInFlight, b.QueueWait)
	if want := "/s [::1]:0 https://gw.example {https://i.example https://g.example/mcp [] true {gateway hunter2hunter2} []} {c.pem k.pem} {never - 60 5s} {debug json off} {a.jsonl all 1048576 24h0m0s {9 720h0m0s 2097152} zstd true} {1048576 7 65536 6 5m0s 2048 3145728 5 2s} 9s 8s true 7s 4 3s"; strings.TrimSpace(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestBadOverrides(t *testing.T) {
	_, err := load(source{path: "g.yaml", data: []byte("log:\n  level: loud\n  format: xml\n")},
		Options{
			Env: lookup(map[string]string{
				"GATEWAY_LOG_LEVEL": "silent", "GATEWAY_LIMITS_IN_FLIGHT": "many",
				"GATEWAY_CATALOG_NAME_LIMIT": "1",
			}),
			Flags: map[string]string{"log.level": "shrill", "catalog.wait": "3",
				"catalog.name_limit": "2", "backends": "x"},
		})
	want := `g.yaml:3: log.format: must be text or json, not "xml"
GATEWAY_LIMITS_IN_FLIGHT: must be a whole number, not "many"
--backends: does not set any key
--catalog-wait: must be a duration like 3s or 2m, not "3"
--log-level: must be debug, info, warn or error, not "shrill"
--catalog-name-limit: must be 8 to 128, not 2`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

// TestListenOverrides: an error about an address from a variable or flag contains the variable or
// flag. The tokens are from the file.
func TestListenOverrides(t *testing.T) {
	for _, tc := range []struct {
		file, env, flag string
		err, warning    string
	}{
		{"", "", "127.0.0.1:7420", "", ""},
		{"", "", ":7420",
			"--listen: other machines can reach this address, and there are no auth.tokens and no auth.oauth",
			""},
		{"", "0.0.0.0:7420", "",
			"GATEWAY_LISTEN: other machines can reach this address, and there are no auth.tokens and no auth.oauth",
			""},
		{"", "7420", "", `GATEWAY_LISTEN: must be host:port, not "7420"`, ""},
		{"listen: :7420", "localhost:7420", "", "", ""},
		{"", "", "[0:0::1]:7420", "", ""},
		{"", "", "[FD00::1]:7420",
			"--listen: other machines can reach this address, and there are no auth.tokens and no auth.oauth", ""},
		{"", "", "Gateway.Example:7420",
			"--listen: other machines can reach this address, and there are no auth.tokens and no auth.oauth", ""},
		{"listen: localhost:7420", "localhost:7420", ":7420",
			"--listen: other machines can reach this address, and there are no auth.tokens and no auth.oauth", ""},
		{"auth: { tokens: [0123456789abcdef] }", "", "[::]:7420", "",
			"--listen: there is no tls: tokens and all other data are sent unencrypted, unless a proxy in front of the gateway encrypts them"},
		{"auth: { tokens: [0123456789abcdef] }\ntls: { cert: c, key: k }", "", "[::]:7420", "", ""},
		{"auth: { tokens: [short] }", "", "[::]:7420",
			"g.yaml:1: auth.tokens[0]: must have at least 16 characters, or it can be guessed", ""},
	} {
		opts := Options{Env: lookup(map[string]string{"GATEWAY_LISTEN": tc.env}),
			Flags: map[string]string{}}
		if tc.flag != "" {
			opts.Flags["listen"] = tc.flag
		}
		loaded, err := load(source{path: "g.yaml",
			data: []byte(tc.file + "\nbackends: [{ name: a, embedded: demo }]")}, opts)
		switch {
		case err != nil:
			if err.Error() != tc.err {
				t.Errorf("%+v: %v", tc, err)
			}
		case tc.err != "":
			t.Errorf("%+v: no error", tc)
		case strings.Join(loaded.Warnings, "\n") != tc.warning:
			t.Errorf("%+v: warns %q", tc, loaded.Warnings)
		}
	}
}

// TestTLSOverrides: an incomplete pair is reported at the place where one half was set.
func TestTLSOverrides(t *testing.T) {
	opts := Options{Env: lookup(map[string]string{"GATEWAY_TLS_KEY": "~/k.pem", "HOME": "/h"})}
	_, err := load(source{path: "g.yaml", data: nil}, opts)
	if want := "GATEWAY_TLS_KEY: requires tls.cert"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	opts.Flags = map[string]string{"tls.cert": "c.pem"}
	loaded, err := load(source{path: "g.yaml", data: nil}, opts)
	if err != nil || loaded.Config.TLS != (TLS{"c.pem", "/h/k.pem"}) {
		t.Errorf("got %+v, %v", loaded, err)
	}
}

// Flags and variables are also used without a file.
func TestOverridesWithoutFile(t *testing.T) {
	loaded, err := load(source{},
		Options{Env: lookup(map[string]string{"GATEWAY_DEFAULTS_CALL_TIMEOUT": "2s"}),
			Flags: map[string]string{"state": "none"}})
	if err != nil {
		t.Fatal(err)
	}
	if b := loaded.Config.Backends[0]; b.Embedded != "demo" || b.CallTimeout != 2*time.Second ||
		loaded.Config.StateDir != "" || len(loaded.Warnings) > 0 {
		t.Errorf("got %+v", loaded)
	}
}
