package backends_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"mcpgateway/backends"
	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/wire"
)

// The embedded backend behaves like any other server, and ends with the Set.
func TestDemoBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, logger := mcptest.NewLog()
		set := backends.New(backends.Options{
			Backends: []config.Backend{{Name: "demo", Embedded: "demo", Enabled: true}},
			Catalog: catalog.Options{Prefix: catalog.PrefixOnCollision, Separator: "__",
				NameLimit: 50},
			Log: logger,
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = set.Run(ctx, nil)
		}()
		set.Start()
		synctest.Wait()
		var names []string
		for _, e := range set.View().Entries(catalog.Tools) {
			names = append(names, e.Exposed)
		}
		if want := []string{"echo", "add", "now"}; !slices.Equal(names, want) {
			t.Errorf("listed %q, want %q", names, want)
		}
		for params, want := range map[string]string{
			`{"name":"echo","arguments":{"text":"<&> é"}}`: `"result":{"content":[{"text":"<&> é","type":"text"}]}`,
			`{"name":"add","arguments":{"a":1.5,"b":2}}`:   `"structuredContent":{"sum":3.5}`,
			`{"name":"add","arguments":{"a":1.5}}`:         `"text":"add: the argument b (number) is missing"`,
			`{"name":"add","arguments":{"A":1.5,"b":1}}`:   `"text":"add: the argument a (number) is missing"`,
			`{"name":"add","arguments":{"a":"1","b":1}}`:   `"text":"add: the argument a must be a number"`,
			`{"name":"add","arguments":{"a":1,"b":true}}`:  `"text":"add: the argument b must be a number"`,
			`{"name":"add","arguments":{"a":1e999,"b":1}}`: `"isError":true`,
			`{"name":"echo","arguments":{"message":"hi"}}`: `"text":"echo: the argument text (string) is missing"`,
			`{"name":"echo","arguments":{"Text":"hi"}}`:    `"text":"echo: the argument text (string) is missing"`,
			`{"name":"echo","arguments":{"text":null}}`:    `"text":"echo: the argument text (string) is missing"`,
			`{"name":"echo"}`:                                    `"isError":true`,
			`{"name":"echo","arguments":{"text":1}}`:             `"text":"echo: the argument text must be a string"`,
			`{"name":"echo","arguments":[]}`:                     `"isError":true`,
			`{"name":"echo","arguments":{"text":"","more":[1]}}`: `"result":{"content":[{"text":"","type":"text"}]}`,
			`{"name":"now","arguments":{"zone":"UTC"}}`:          `"text":"2000-01-01T`,
			`{"name":"now"}`:                                     `"text":"2000-01-01T`,
			`{"name":"no such"}`:                                 `"error":{"code":-32602,`,
			`{"name":"add","arguments":{"a":1e308,"b":1e308}}`:   `"isError":true`,
			`{"name":"add","arguments":{"a":-1e308,"b":-1e308}}`: `"isError":true`,
		} {
			c := &callRecorder{}
			set.SendCall("demo", "", wire.NewRequest("0", "tools/call", []byte(params)),
				c)
			synctest.Wait()
			if len(c.results) != 1 || !strings.Contains(c.results[0], want) {
				t.Errorf("%s: %q, want %s", params, c.results, want)
			}
		}
		cancel()
		<-done
	})
}
