package protocol_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

func TestReadInputRequests(t *testing.T) {
	some := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`"k%d":{"method":"roots/list"}`, i))
		}
		return `{"inputRequests":{` + strings.Join(all, ",") + `}}`
	}
	for _, tt := range []struct {
		result string
		want   string // key=method params, separated by ;, then the state
		err    string
	}{
		{`{"inputRequests":{"b":{"method":"roots/list"},"\u0061":{"params":{ "message":"1.0" },"method":"elicitation/create"}},"requestState":"\u0073 "}`,
			`b=roots/list ;a=elicitation/create { "message":"1.0" };"\u0073 "`, ""},
		{`{"inputRequests":{"a":{"method":"roots/list","params":null}}}`, `a=roots/list ;`, ""},
		{`{"requestState":""}`, `""`, ""},
		{`{"inputRequests":null,"requestState":"s"}`, `"s"`, ""},
		{`{"inputRequests":{},"requestState":"s"}`, `"s"`, ""},
		{`{"inputRequests":{}}`, "", "neither"},
		{`{"requestState":null}`, "", "neither"},
		{``, "", "neither"},
		{`7`, "", "neither"},
		{`{"requestState":7}`, "", "not a string"},
		{`{"inputRequests":[]}`, "", "not an object"},
		{`{"inputRequests":{"a":7}}`, "", "has no method"},
		{`{"inputRequests":{"a":{"method":7}}}`, "", "has no method"},
		{`{"inputRequests":{"a":{"method":"m","params":[]}}}`, "", "params that are not an object"},
		{`{"inputRequests":{"a":{"method":"m"},"\u0061":{"method":"n"}}}`, "",
			"two entries with the same key"},
		{`{"inputRequests":{"a":{"method":"m"}},"inputRequests":{"b":{"method":"m"}},"requestState":"s"}`, "", "twice"},
		{`{"inputRequests":{"a":{"method":"m"}},"requestState":"s","requestState":"t"}`, "",
			"twice"},
		{some(257), "", "more than 256"},
	} {
		inputs, state, err := protocol.ReadInputRequests([]byte(tt.result))
		if err != nil {
			if tt.err == "" || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%.200s: %v, want %q", tt.result, err, tt.err)
			}
			continue
		}
		got := ""
		for _, in := range inputs {
			got += fmt.Sprintf("%s=%s %s;", in.Key, in.Method, in.Params)
		}
		if got += string(state); got != tt.want || tt.err != "" {
			t.Errorf("%.200s: %s, want %s %s", tt.result, got, tt.want, tt.err)
		}
	}
	if inputs, _, err := protocol.ReadInputRequests([]byte(some(256))); len(inputs) != 256 ||
		err != nil {
		t.Errorf("%d inputs, %v", len(inputs), err)
	}
}

func TestInputRequiredResult(t *testing.T) {
	inputs := []protocol.InputRequest{{Key: "é\"", Method: "roots/list"},
		{Key: "b", Method: "elicitation/create", Params: []byte(`{ "message":"1.0" }`)}}
	const requests = `"inputRequests":{"é\"":{"method":"roots/list","params":{}},"b":{"method":"elicitation/create","params":{ "message":"1.0" }}}`
	for _, tt := range []struct {
		inputs      []protocol.InputRequest
		state, want string
	}{
		{inputs, "s\n", `{"resultType":"input_required",` + requests + `,"requestState":"s\n"}`},
		{inputs, "", `{"resultType":"input_required",` + requests + `}`},
		{nil, "s", `{"resultType":"input_required","requestState":"s"}`},
	} {
		if got := protocol.InputRequiredResult(tt.inputs, tt.state); string(got) != tt.want {
			t.Errorf("%s, want %s", got, tt.want)
		}
	}
}

func TestSetRequestState(t *testing.T) {
	for _, tt := range []struct{ was, state, is string }{
		{`{"resultType":"input_required", "requestState":"a", "inputRequests": {} }`, "b\"",
			`{"requestState":"b\"","resultType":"input_required","inputRequests": {}}`},
		{`{"inputRequests": {}}`, "b", `{"requestState":"b","inputRequests": {}}`},
		{`{"inputRequests": {},"requestState":"a"}`, "", `{"inputRequests": {}}`},
	} {
		if got := protocol.SetRequestState(response(t, `"result":`+tt.was),
			tt.state); string(got.Part(wire.PartResult)) != tt.is {
			t.Errorf("%s: %s, want %s", tt.was, got.Raw(), tt.is)
		}
	}
}

func TestReadContinuation(t *testing.T) {
	for _, tt := range []struct {
		params, responses, state string
		retry                    bool
	}{
		{`{}`, "", "", false},
		{`{"_meta":{"requestState":"s"},"arguments":{"inputResponses":{}}}`, "", "", false},
		{`{"inputResponses":{ "a":{} },"requestState":"\u0073"}`, `{ "a":{} }`, "s", true},
		{`{"requestState":"s"}`, "", "s", true},
		{`{"inputResponses":{}}`, "{}", "", true},
		{`{"inputResponses":null}`, "", "", true},
		{`{"inputResponses":7,"requestState":7}`, "", "", true},
		{`{"requestState":null}`, "", "", true},
		{`{"requestState":""}`, "", "", true},
	} {
		responses, state, retry := protocol.ReadContinuation(request(t, "tools/call", tt.params))
		if string(responses) != tt.responses || state != tt.state || retry != tt.retry {
			t.Errorf("%s: %s, %q, %v", tt.params, responses, state, retry)
		}
	}
	if _, _, retry := protocol.ReadContinuation(wire.NewRequest("1", "m", nil)); retry {
		t.Error("without params it counts as a continuation")
	}
}

// A requestState that a backend could read differently is rejected, because the backend could
// otherwise receive the state of another client.
func TestAmbiguousRequestStates(t *testing.T) {
	for _, params := range []string{
		`{"requestState":"a","requestState":"b"}`, `{"requestState":"a","\u0072equestState":"b"}`,
		`{"RequestState":"a"}`, `{"requeststate":"a"}`,
		`{"inputResponses":{},"inputResponses":{}}`, `{"InputResponses":{}}`,
	} {
		if m, err := wire.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` +
			params + `}`)); err == nil {
			t.Errorf("%s is a message", m.Raw())
		}
	}
}

func TestSetContinuation(t *testing.T) {
	for _, tt := range []struct{ was, responses, state, is string }{
		{`{"name":"a", "arguments":{"n":1.0}}`, `{"k": {}}`, `"\u0073"`,
			`{"inputResponses":{"k": {}},"requestState":"\u0073","name":"a","arguments":{"n":1.0}}`},
		{`{"requestState":"x","name":"a","inputResponses":{}}`, "", "", `{"name":"a"}`},
		{`{"requestState":"x","name":"a"}`, `{}`, "", `{"inputResponses":{},"name":"a"}`},
		{`{"name":"a"}`, "", `"s"`, `{"requestState":"s","name":"a"}`},
	} {
		var responses, state []byte
		if tt.responses != "" {
			responses = []byte(tt.responses)
		}
		if tt.state != "" {
			state = []byte(tt.state)
		}
		got := protocol.SetContinuation(request(t, "tools/call", tt.was), responses, state)
		if string(got.Part(wire.PartParams)) != tt.is || got.ID() != "1" {
			t.Errorf("%s: %s, want %s", tt.was, got.Raw(), tt.is)
		}
	}
}

// FuzzReadInputRequests checks that a result which is read, written and read again is the same.
func FuzzReadInputRequests(f *testing.F) {
	for _, text := range []string{
		`{"inputRequests":{"b":{"method":"roots/list"},"\u0061":{"params":{ "message":"1.0" },"method":"elicitation/create"}},"requestState":"\u0073 "}`,
		`{"inputRequests":{"a":{"method":"m","params":null}},"requestState":null}`, `[]`,
		`{"requestState":""}`, `{"inputRequests":{"":{"method":"\ud800"}}}`, `{"inputRequests":`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, result []byte) {
		inputs, state, err := protocol.ReadInputRequests(result)
		if err != nil || !json.Valid(result) {
			return
		}
		if len(inputs) == 0 && state == nil {
			t.Fatal("no input requests")
		}
		written := protocol.InputRequiredResult(inputs, wire.Unquote(state))
		again, _, err := protocol.ReadInputRequests(written)
		if !json.Valid(written) || len(again) != len(inputs) ||
			err != nil && wire.Unquote(state) != "" {
			t.Fatalf("%s was written as %s: %v", result, written, err)
		}
		for i := range again {
			if inputs[i].Params == nil {
				inputs[i].Params = []byte("{}")
			}
			if again[i].Key != inputs[i].Key || again[i].Method != inputs[i].Method ||
				string(again[i].Params) != string(inputs[i].Params) {
				t.Fatalf("%+v was written as %s", inputs[i], written)
			}
		}
	})
}

func TestStripNullInputs(t *testing.T) {
	for was, is := range map[string]string{ // "" = the same message
		`{"resultType":"input_required","inputRequests":null,"requestState":"s","x":null}`: `{"resultType":"input_required","requestState":"s","x":null}`,
		`{"resultType":"input_required","inputRequests":{},"requestState":null}`:           `{"resultType":"input_required","inputRequests":{}}`,
		`{"resultType":"input_required","inputRequests":{}, "requestState":"null"}`:        "",
	} {
		m := response(t, `"result":`+was)
		got := protocol.StripNullInputs(m)
		if is == "" {
			if &got.Raw()[0] != &m.Raw()[0] {
				t.Errorf("%s became %s", was, got.Raw())
			}
		} else if string(got.Part(wire.PartResult)) != is {
			t.Errorf("%s became %s", was, got.Raw())
		}
	}
}
