package logging_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"mcpgateway/internal/logging"
)

const secret = `hun"ter<2>/ö s3cret`

type stringer struct{ s string }

func (s *stringer) String() string { return s.s } // panics on nil

type valuer struct{ s string }

func (v valuer) LogValue() slog.Value { return slog.GroupValue(slog.String("inner", v.s)) }

// everything returns every kind of attribute that may contain a secret.
func everything() []any {
	u := &url.URL{
		Scheme: "https", User: url.UserPassword("me", secret), Host: "host",
		Path: "/mcp", RawQuery: "k=" + url.QueryEscape(secret),
	}
	return []any{
		"string", secret, "tool", "a " + secret, "backend_tool", secret, "as", []string{secret},
		"err", fmt.Errorf("dial %q: %w", secret, errors.New(secret)),
		"stringer", &stringer{secret},
		"nil", (*stringer)(nil),
		"url", u,
		"valuer", valuer{secret},
		"bytes", []byte(secret),
		"raw", json.RawMessage(`{"a":` + jsonString(secret) + `}`),
		"map", map[string]any{"deep": []string{secret}},
		"struct", struct{ Token string }{secret},
		slog.Group("group", "a", secret, slog.Group("b", "c", secret)),
		"n", 8080, "f", 1.5, "b", true, "d", time.Second, "t", time.Unix(0, 0), "null", nil,
	}
}

func jsonString(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

func TestValuesAreMasked(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			var out bytes.Buffer
			mask := logging.NewMask(secret, "8080")
			log := logging.New(&out, logging.Options{Format: format, Mask: mask}).With("with",
				secret).WithGroup("all")
			log.Info("started with "+secret, everything()...)
			if strings.Contains(out.String(), "hun") || strings.Contains(out.String(), "s3cret") {
				t.Errorf("leaked: %s", &out)
			}
			if n := strings.Count(out.String(), "***"); n < 15 {
				t.Errorf("%d places masked: %s", n, &out)
			}
			if !strings.Contains(out.String(), "8080") {
				t.Errorf("a number was masked: %s", &out)
			}
		})
	}
}

func TestJSONStaysValid(t *testing.T) {
	var out bytes.Buffer
	log := logging.New(&out, logging.Options{Format: "json", Mask: logging.NewMask(secret)})
	log.Info("call "+secret, everything()...)
	log.Info(
		"call", "arguments", json.RawMessage("{\"a\":\n[1,\"<b>\"]}"), "bad",
		json.RawMessage(`{`), "f", func() {},
	)
	var got []map[string]any
	for line := range strings.Lines(out.String()) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		got = append(got, m)
	}
	if len(got) != 2 || got[0]["n"] != 8080.0 || got[0]["null"] != nil ||
		got[0]["nil"] != "<nil>" ||
		got[0]["msg"] != "call ***" {
		t.Fatalf("got %v", got)
	}
	if !strings.Contains(out.String(), `"arguments":{"a":[1,"<b>"]}`) {
		t.Errorf("raw JSON was rewritten: %s", &out)
	}
}

func TestUnmasked(t *testing.T) {
	var out bytes.Buffer
	level := new(slog.LevelVar)
	log := logging.New(&out, logging.Options{Level: level})
	log.Debug("no")
	level.Set(slog.LevelDebug)
	log.Debug("yes", "err", io.EOF, "list", []string{"a"})
	if got := out.String(); !strings.HasSuffix(got, " level=DEBUG msg=yes err=EOF list=[a]\n") ||
		strings.Contains(got, "no") {
		t.Errorf("got %s", got)
	}
}

func TestParseLevel(t *testing.T) {
	for name, want := range map[string]slog.Level{
		"debug": slog.LevelDebug, "info": slog.LevelInfo, "WARN": slog.LevelWarn,
		"error": slog.LevelError,
	} {
		if got, err := logging.ParseLevel(name); got != want || err != nil {
			t.Errorf("ParseLevel(%q) = %v, %v", name, got, err)
		}
	}
	for _, name := range []string{"", "warning", "info+1", "4"} {
		if _, err := logging.ParseLevel(name); err == nil {
			t.Errorf("ParseLevel(%q) went through", name)
		}
	}
}

func BenchmarkLine(b *testing.B) {
	for _, n := range []int{-1, 0, 20, 400} {
		o := logging.Options{Format: "json"}
		if n >= 0 {
			o.Mask = logging.NewMask(manySecrets(n)...)
		}
		b.Run(fmt.Sprintf("secrets=%d", n), func(b *testing.B) {
			log := logging.New(io.Discard, o)
			b.ReportAllocs()
			for b.Loop() {
				log.Info(
					"backend ready", "backend", "files", "revision", "2025-06-18", "dur",
					time.Second, "tool", "read_file",
				)
			}
		})
	}
}

func manySecrets(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("sk-%032d", i)
	}
	return all
}

// A duration has the same text in both formats.
func TestDurationsAreText(t *testing.T) {
	for format, want := range map[string]string{"text": "dur=1.5s next=1m0s",
		"json": `"dur":"1.5s","next":"1m0s"`} {
		var out bytes.Buffer
		logging.New(&out, logging.Options{Format: format}).Info("x", "dur", 1500*time.Millisecond,
			"next", time.Minute)
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s: %s", format, &out)
		}
	}
}
