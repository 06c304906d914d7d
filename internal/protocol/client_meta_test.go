package protocol_test

import (
	"encoding/json"
	"strings"
	"testing"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// meta returns a request with this _meta, in which io/ stands for the reserved prefix.
func meta(t testing.TB, members string) wire.Message {
	t.Helper()
	return request(t, "tools/call", `{"a":1.0,"_meta":{`+full(members)+`}}`)
}

func full(text string) string { return strings.ReplaceAll(text, "io/", "io.modelcontextprotocol/") }

func TestIsModern(t *testing.T) {
	for members, want := range map[string]struct {
		named  string
		modern bool
	}{
		``:                                        {"", false},
		`"io/protocolVersion":""`:                 {"", false},
		`"io/protocolVersion":null`:               {"null", true},
		`"io/protocolVersion":7`:                  {"7", true},
		`"io/protocolVersion":"2025-11-25"`:       {"2025-11-25", false},
		`"io/protocolVersion":"2026-07-28"`:       {"2026-07-28", true},
		`"io/protocolVersion":"2026-07-2\u0038"`:  {"2026-07-28", true},
		`"io/protocolVersion":"v999.0.0"`:         {"v999.0.0", true},
		`"x":{"io/protocolVersion":"2026-07-28"}`: {"", false},
		`"io/protocolVersion":"2026-07-28","io/protocolVersion":"2025-11-25"`: {"", false},
	} {
		m := meta(t, members)
		if named, modern := protocol.RevisionOf(m), protocol.IsModern(m); named != want.named ||
			modern != want.modern {
			t.Errorf("%s: %q, %v", members, named, modern)
		}
		if err := protocol.RejectInBatch(m); want.modern != (err != nil &&
			err.Code == wire.CodeInvalidRequest) {
			t.Errorf("%s: in a batch: %v", members, err)
		}
	}
	for _, text := range []string{`{"jsonrpc":"2.0","id":1,"method":"ping"}`,
		`{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}`,
		`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":"io.modelcontextprotocol/protocolVersion"}}`} {
		if m := parse(t, text); protocol.IsModern(m) || protocol.RevisionOf(m) != "" {
			t.Errorf("%s is modern", text)
		}
	}
}

func TestParseClientMeta(t *testing.T) {
	const good = `"io/protocolVersion":"2026-07-28","io/clientCapabilities":{ "roots":{} }`
	for _, tt := range []struct {
		members string
		code    int // 0 = no error
		client  string
		level   string
	}{
		{good, 0, "", ""},
		{good + `,"io/clientInfo":{"name":"\u00e9"},"io/logLevel":"warning","progressToken":1`, 0,
			`{"name":"\u00e9"}`, "warning"},
		{good + `,"io/clientInfo":"me","io/logLevel":null`, 0, "", ""},
		{good + `,"io/logLevel":"loud"`, -32602, "", ""},
		{good + `,"io/logLevel":7`, -32602, "", ""},
		{``, -32602, "", ""},
		{`"io/protocolVersion":"2026-07-28"`, -32602, "", ""},
		{`"io/protocolVersion":"2026-07-28","io/clientCapabilities":null`, -32602, "", ""},
		{`"io/protocolVersion":"2026-07-28","io/clientCapabilities":[]`, -32602, "", ""},
		{`"io/clientCapabilities":{}`, -32602, "", ""},
		{`"io/protocolVersion":null,"io/clientCapabilities":{}`, -32602, "", ""},
		{`"io/protocolVersion":7,"io/clientCapabilities":{}`, -32602, "", ""},
		{`"io/protocolVersion":"2026-07-28","io/protocolVersion":"2026-07-28","io/clientCapabilities":{}`, -32602, "", ""},
		{`"io/protocolVersion":"2099-01-01"`, -32602, "", ""},
		{`"io/protocolVersion":"2099-01-01","io/clientCapabilities":{}`, -32022, "", ""},
		{`"io/protocolVersion":"2025-11-25","io/clientCapabilities":{}`, -32022, "", ""},
	} {
		s, err := protocol.ParseClientMeta(meta(t, tt.members))
		switch {
		case err != nil && err.Code != tt.code, err == nil && tt.code != 0:
			t.Errorf("%s: %v, want %d", tt.members, err, tt.code)
		case err == nil && (s.Revision != "2026-07-28" ||
			string(s.Capabilities) != `{ "roots":{} }` || string(s.ClientInfo) != tt.client ||
			s.LogLevel != tt.level):
			t.Errorf("%s: %+v", tt.members, s)
		}
	}
}

func TestUnsupportedVersionError(t *testing.T) {
	for date, want := range map[string]string{"v9": "v9", "": "", "a\xff": "a\uFFFD",
		strings.Repeat("é", 60): strings.Repeat("é", 50), "\"": "\""} {
		var data struct {
			Supported []string
			Requested string
		}
		e := protocol.UnsupportedVersionError(date)
		if err := json.Unmarshal(e.Data, &data); err != nil || e.Code != -32022 ||
			data.Requested != want || len(data.Supported) != 5 ||
			data.Supported[0] != "2026-07-28" {
			t.Errorf("%q: %d %s", date, e.Code, e.Data)
		}
	}
	e := protocol.UnsupportedLegacyVersionError("2026-07-28")
	if want := `{"requested":"2026-07-28","supported":["2025-11-25","2025-06-18","2025-03-26","2024-11-05"]}`; string(e.Data) != want || e.Code != -32022 {
		t.Errorf("%d %s, want %s", e.Code, e.Data, want)
	}
}

func TestClientMetaAddTo(t *testing.T) {
	all := protocol.ClientMeta{Revision: "2026-07-28", Capabilities: []byte(`{"roots": {}}`),
		ClientInfo: []byte(`{"name":"g"}`), LogLevel: "error"}
	const (
		bare     = `"io/protocolVersion":"2026-07-28","io/clientCapabilities":{}`
		withMeta = `"io/protocolVersion":"2026-07-28","io/clientCapabilities":{"roots": {}},"io/clientInfo":{"name":"g"},"io/logLevel":"error"`
	)
	for _, tt := range []struct{ was, all, bare, off string }{
		{`{"jsonrpc":"2.0","id":1,"method":"m"}`, `{"params":{"_meta":{` + withMeta +
			`}},"jsonrpc":"2.0","id":1,"method":"m"}`,
			`{"params":{"_meta":{` + bare + `}},"jsonrpc":"2.0","id":1,"method":"m"}`, ""},
		{`{"jsonrpc":"2.0","id":1,"method":"m","params":null}`,
			`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{` + withMeta + `}}}`,
			`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{` + bare + `}}}`, ""},
		{`{"jsonrpc":"2.0","id":1,"method":"m","params":{}}`,
			`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{` + withMeta + `}}}`,
			`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{` + bare + `}}}`, ""},
		{`{"params": {"name":"\u00e9", "n":1.0}, "jsonrpc":"2.0","id":1,"method":"m"}`,
			`{"params": {"_meta":{` + withMeta +
				`},"name":"\u00e9", "n":1.0}, "jsonrpc":"2.0","id":1,"method":"m"}`,
			`{"params": {"_meta":{` + bare +
				`},"name":"\u00e9", "n":1.0}, "jsonrpc":"2.0","id":1,"method":"m"}`, ""},
		{`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{ "progressToken":1, "io/logLevel":"debug", "io/clientInfo":{}, "io/own":1e1 }, "a":2}}`,
			`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{` + withMeta +
				`,"progressToken":1,"io/own":1e1}, "a":2}}`,
			`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{` + bare +
				`,"progressToken":1,"io/own":1e1}, "a":2}}`,
			`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"progressToken":1,"io/own":1e1}, "a":2}}`},
		{`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":7}}`,
			`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{` + withMeta + `}}}`,
			`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{` + bare + `}}}`, ""},
		{`{"jsonrpc":"2.0","id":1,"method":"m","params":[1]}`,
			`{"jsonrpc":"2.0","id":1,"method":"m","params":[1]}`,
			`{"jsonrpc":"2.0","id":1,"method":"m","params":[1]}`, ""},
	} {
		m := parse(t, full(tt.was))
		if got := all.AddTo(m); string(got.Raw()) != full(tt.all) {
			t.Errorf("%s\nbecame %s\nnot    %s", tt.was, got.Raw(), full(tt.all))
		}
		if got := (protocol.ClientMeta{Revision: "2026-07-28"}).AddTo(all.AddTo(m)); string(
			got.Raw()) != full(tt.bare) {
			t.Errorf("%s\nbecame %s\nnot    %s", tt.was, got.Raw(), full(tt.bare))
		}
		if got := protocol.StripMeta(m); tt.off != "" && string(got.Raw()) != full(tt.off) ||
			tt.off == "" && &got.Raw()[0] != &m.Raw()[0] {
			t.Errorf("stripped %s: %s", tt.was, got.Raw())
		}
		if string(m.Raw()) != full(tt.was) {
			t.Errorf("%s has changed to %s", tt.was, m.Raw())
		}
	}
}

func TestSubscriptionID(t *testing.T) {
	for _, id := range []wire.ID{`7`, `"7"`, `9007199254740993`, `"\u00e9"`} {
		for _, params := range []string{``, `{"uri":"u:1"}`,
			`{"_meta":{"a":1,"io.modelcontextprotocol/subscriptionId":3}}`} {
			m := wire.NewNotification("notifications/resources/updated", nil)
			if params != "" {
				m = wire.NewNotification("notifications/resources/updated", []byte(params))
			}
			got := protocol.SetSubscriptionID(m, id)
			if protocol.SubscriptionID(got) != id || got.Kind() != wire.Notification {
				t.Errorf("%s: %s", id, got.Raw())
			}
			if off := protocol.StripMeta(got); protocol.SubscriptionID(off) != "" {
				t.Errorf("stripped: %s", off.Raw())
			}
		}
	}
	if id := protocol.SubscriptionID(wire.NewNotification("m", nil)); id != "" {
		t.Errorf("without a subscription: %s", id)
	}
}

// FuzzClientMeta checks that any _meta is accepted or rejected with one of two codes, and that
// added metadata can be read again.
func FuzzClientMeta(f *testing.F) {
	for _, text := range []string{`{}`, `[]`, `7`, `{"_meta":null}`, `{` + testClientMeta + `}`,
		full(`{"_meta":{"io/protocolVersion":"","io/logLevel":"\ud800","io\/clientInfo":[]}}`)} {
		f.Add([]byte(text), "2026-07-28", "info")
	}
	f.Fuzz(func(t *testing.T, params []byte, date, level string) {
		m, err := wire.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"m","params":` +
			string(params) + `}`))
		if err != nil || m.Kind() != wire.Request {
			return
		}
		if _, err := protocol.ParseClientMeta(m); err != nil && err.Code != -32602 &&
			err.Code != -32022 {
			t.Fatal(err)
		}
		protocol.IsModern(m)
		s := protocol.ClientMeta{Revision: date, LogLevel: level, ClientInfo: []byte("{}")}
		on := s.AddTo(m)
		if !json.Valid(on.Raw()) || on.Method() != "m" || on.ID() != m.ID() {
			t.Fatalf("%s", on.Raw())
		}
		if !wire.IsObject(on.Part(wire.PartParams)) {
			return
		}
		if got, err := protocol.ParseClientMeta(on); err == nil &&
			(got.Revision != date || got.LogLevel != level || string(got.Capabilities) != "{}") {
			t.Fatalf("%+v became %+v", s, got)
		}
		if off := protocol.StripMeta(on); protocol.IsModern(off) || off.Token() != m.Token() {
			t.Fatalf("stripped: %s", off.Raw())
		}
	})
}

func BenchmarkClientMetaAddTo(b *testing.B) {
	s := protocol.ClientMeta{Revision: "2026-07-28",
		Capabilities: []byte(`{"sampling":{},"elicitation":{}}`),
		ClientInfo:   []byte(`{"name":"gateway","version":"1"}`)}
	page := strings.Repeat(`line 17 of a file, with an escape\n`, 120)
	for name, params := range map[string]string{
		"call 32B": `{"name":"gh__search","arguments":{"query":"thirty-two bytes"},"_meta":{"progressToken":7}}`, "call 4KiB": `{"name":"a","arguments":{"text":"` + page + `"},"_meta":{"progressToken":7}}`,
	} {
		m := request(b, "tools/call", params)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.AddTo(m)
			}
		})
	}
}
