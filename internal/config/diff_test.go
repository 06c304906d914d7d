package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// loadText loads a file with this text.
func loadText(t *testing.T, text string) *Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gateway.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, err := Load(Options{Path: path, Env: func(string) (string, bool) { return "", false }})
	if err != nil {
		t.Fatal(err)
	}
	return loaded.Config
}

// summary returns the non-empty fields of c on one line.
func summary(c Changes) string {
	var all []string
	for f, v := range reflect.ValueOf(c).Fields() {
		if v.Len() > 0 {
			all = append(all, fmt.Sprintf("%s:%v", f.Name, v))
		}
	}
	return strings.Join(all, " ")
}

func TestDiff(t *testing.T) {
	const three = "backends:\n- {name: a, command: a}\n- {name: b, command: b}\n- {name: c, command: c}\n"
	for _, c := range []struct{ name, old, next, want string }{
		{"equal", three, three, "Unchanged:[a b c]"},
		{"different spelling", three, "# a note\n" + three + "log: { level: info }\n",
			"Unchanged:[a b c]"},
		{"added and removed", three,
			"backends:\n- {name: a, command: a}\n- {name: d, command: d}\n- {name: c, command: c}\n",
			"Added:[d] Removed:[b] Unchanged:[a c]"},
		{"changed", three,
			"backends:\n- {name: a, command: a}\n- {name: b, command: x, args: [y], env: {Z: z}, tools: {deny: [w]}}\n- {name: c, command: c}\n",
			"Changed:[{b [args command env.Z tools.deny] restarts}] Unchanged:[a c]"},
		{"first moved to the end", three,
			"backends:\n- {name: b, command: b}\n- {name: c, command: c}\n- {name: a, command: a}\n",
			"Unchanged:[b c a] Moved:[a]"},
		{"reversed", three,
			"backends:\n- {name: c, command: c}\n- {name: b, command: b}\n- {name: a, command: a}\n",
			"Unchanged:[c b a] Moved:[c b]"},
		{"an added first backend moves no other", three,
			"backends:\n- {name: z, command: z}\n" + strings.TrimPrefix(three, "backends:\n"),
			"Added:[z] Unchanged:[a b c]"},
		{"disabled and enabled",
			"backends:\n- {name: a, command: a, enabled: false}\n- {name: b, command: b}\n- {name: c, command: c, enabled: false}\n",
			"backends:\n- {name: a, command: x}\n- {name: b, command: b, enabled: false}\n- {name: c, command: c, enabled: false}\n",
			"Enabled:[a] Disabled:[b] UnchangedDisabled:[c]"},
		{"disabled before and after",
			"backends:\n- {name: a, command: a, enabled: false}\n- {name: b, command: b, enabled: false}\n",
			"backends:\n- {name: b, command: x, enabled: false}\n- {name: c, command: c, enabled: false}\n- {name: d, command: d}\n",
			"Added:[c d] Removed:[a] Changed:[{b [command] in place}] Inactive:[b c a]"},
		{"a default changes all backends", three, "defaults: { call_timeout: 1m }\n" + three,
			"Changed:[{a [call_timeout] restarts} {b [call_timeout] restarts} {c [call_timeout] restarts}]"},
		{"an empty variable counts", "backends: [{name: a, command: a}]",
			`backends: [{name: a, command: a, env: {X: ""}}]`, "Changed:[{a [env.X] restarts}]"},
		{"a header", `backends: [{name: a, url: "https://h/", headers: {Authorization: x}}]`,
			`backends: [{name: a, url: "https://h/", headers: {Authorization: y}}]`,
			"Changed:[{a [headers.Authorization] restarts}]"},
		{"keys that a reload applies", three,
			three +
				"catalog: {prefix: always, wait: 1s}\nlog: {level: debug}\nhosts: [gw.example]\norigins: [\"https://x.example\"]\n",
			"Unchanged:[a b c] Applied:[catalog.prefix catalog.wait hosts log.level origins]"},
		{"keys that need a restart", three,
			three +
				"state: none\nlisten: 127.0.0.1:1\nlog: {format: json}\naudit: {file: x}\nlimits: {in_flight: 3}\n",
			"Unchanged:[a b c] NeedRestart:[audit.file limits.in_flight listen log.format state]"},
		{"another certificate", "tls: {cert: a, key: b}", "tls: {cert: c, key: b}",
			"Applied:[tls.cert]"},
		{"TLS removed", "tls: {cert: a, key: b}", "", "NeedRestart:[tls.cert tls.key]"},
		{"TLS added", "", "tls: {cert: a, key: b}", "NeedRestart:[tls.cert tls.key]"},
		{"another token", "auth: {tokens: [0123456789abcdef]}",
			"auth: {tokens: [0123456789abcdeX]}", "Applied:[auth.tokens]"},
		{"tokens added", "", "auth: {tokens: [0123456789abcdef]}", "Applied:[auth.tokens]"},
		{"OAuth added", "", oauthText + "}}", "Applied:[auth.oauth.audience auth.oauth.issuer]"},
		{"OAuth changed", oauthText + ", scopes: [a]}}", oauthText + ", scopes: [b]}}",
			"Applied:[auth.oauth.scopes]"},
		{"OAuth removed", oauthText + ", scopes: [a]}}", "",
			"NeedRestart:[auth.oauth.audience auth.oauth.issuer auth.oauth.scopes]"},
		{"tokens removed", "auth: {tokens: [0123456789abcdef]}", "",
			"NeedRestart:[auth.tokens]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			old, next := loadText(t, c.old), loadText(t, c.next)
			if got := summary(Diff(old, next)); got != c.want {
				t.Errorf("\n got %s\nwant %s", got, c.want)
			}
			// A stored digest gives the same result as the configuration, and contains no value.
			text, err := json.Marshal(NewDigest(old, "salt"))
			if err != nil {
				t.Fatal(err)
			}
			var kept Digest
			if err := json.Unmarshal(text, &kept); err != nil {
				t.Fatal(err)
			}
			if got := summary(kept.Diff(next)); got != c.want {
				t.Errorf("by digest\n got %s\nwant %s", got, c.want)
			}
			if c.old != "" && strings.Contains(string(text), "0123456789abcdef") {
				t.Errorf("a value in %s", text)
			}
			again := Diff(old.Effective(next, Diff(old, next)), next)
			if !slices.Equal(again.NeedRestart, Diff(old, next).NeedRestart) ||
				len(again.Applied) > 0 || again.AnyBackend() {
				t.Errorf("Diff after Effective: %s", summary(again))
			}
		})
	}
}

func TestDiffLeavesOutFlags(t *testing.T) {
	old, next := loadText(t, "listen: 127.0.0.1:1\n"), loadText(t, "log: {format: json}")
	if got := summary(NewDigest(old, "").Diff(next, "listen")); got != "NeedRestart:[log.format]" {
		t.Error(got)
	}
}

// Each key outside of backends has an explicit reload effect, because the default is a restart.
func TestEveryKeyHasAReloadEffect(t *testing.T) {
	var keys []string
	var walk func(t reflect.Type, path string)
	walk = func(typ reflect.Type, path string) {
		for _, f := range fields(typ) {
			switch key := joinPath(path, f.key); {
			case key == "backends":
			case f.typ.Kind() == reflect.Struct:
				walk(f.typ, key)
			default:
				keys = append(keys, key)
			}
		}
	}
	walk(reflect.TypeFor[Config](), "")
	slices.Sort(keys)
	if known := slices.Sorted(maps.Keys(reloadEffects)); !slices.Equal(keys, known) {
		t.Errorf("keys\n%v\nbut the table has\n%v", keys, known)
	}
}

// Each field of a Backend is compared: a field that Diff overlooked would never be applied.
func TestDiffComparesAllFields(t *testing.T) {
	for i, f := range slices.Collect(fieldsOf(reflect.TypeFor[Backend]())) {
		// PermissionUnknown is compared together with Misconfigured.
		if f == "Name" || f == "Enabled" || f == "PermissionUnknown" {
			continue
		}
		old, next := Default(), Default()
		old.Backends, next.Backends = []Backend{{Name: "x"}}, []Backend{{Name: "x"}}
		switch v := reflect.ValueOf(&next.Backends[0]).Elem().Field(i); v.Interface().(type) {
		case string, Transport, Sharing, GenerationSetting:
			v.SetString("y")
		case []string:
			v.Set(reflect.ValueOf([]string{"y"}))
		case map[string]string:
			v.Set(reflect.ValueOf(map[string]string{"y": "z"}))
		case time.Duration, int:
			v.SetInt(1)
		case bool:
			v.SetBool(true)
		case ClientTLS:
			v.Set(reflect.ValueOf(ClientTLS{ServerName: "y"}))
		case OAuth:
			v.Set(reflect.ValueOf(OAuth{ClientID: "y"}))
		case ToolSettings:
			v.Set(reflect.ValueOf(ToolSettings{Confirm: []string{"y"}}))
			one := Backend{Name: "x", Tools: ToolSettings{Pin: "y"}}
			pinned := Config{Backends: []Backend{one}}
			if c := Diff(&old, &pinned); len(c.Changed) != 1 {
				t.Errorf("tools.pin: %s", summary(c))
			}
		case Rate:
			v.Set(reflect.ValueOf(Rate{Burst: 1}))
		case Filter:
			v.Set(reflect.ValueOf(Filter{Allow: []string{"y"}}))
		default:
			t.Errorf("%s: of an unknown type", f)
		}
		if c := Diff(&old, &next); len(c.Changed) != 1 {
			t.Errorf("%s: %s", f, summary(c))
		}
	}
}

func fieldsOf(t reflect.Type) func(func(string) bool) {
	return func(yield func(string) bool) {
		for f := range t.Fields() {
			if !yield(f.Name) {
				return
			}
		}
	}
}

// The page limit is never larger than the message limit that the gateway was started with.
func TestEffectiveLimitsPages(t *testing.T) {
	old, next := loadText(t, "limits: {message: 1MiB}"),
		loadText(t, "limits: {message: 64MiB, page: 8MiB}\nstate: none")
	got := old.Effective(next, Diff(old, next))
	if got.Limits.Message != 1<<20 || got.Limits.Page != 1<<20 || got.State != old.State ||
		got.StateDir != old.StateDir {
		t.Errorf("%+v", got)
	}
}

// Digests with different salts have no hash in common and cannot be compared.
func TestDigestDependsOnSalt(t *testing.T) {
	c := loadText(t, "listen: 127.0.0.1:1\nbackends: [{name: a, command: a, env: {T: tttt}}]")
	a, b := NewDigest(c, "one"), NewDigest(c, "two")
	for key, sum := range a.Keys {
		if b.Keys[key] == sum {
			t.Errorf("%s is the same", key)
		}
	}
	if a.Backends[0].Keys["env.T"] == b.Backends[0].Keys["env.T"] {
		t.Error("env.T is the same")
	}
}

const oauthText = "auth: {oauth: {issuer: 'https://i.example', audience: 'https://g.example/mcp'"
