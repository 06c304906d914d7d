//go:build unix

package integration

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
)

// A twin is a server without an SDK, over stdio, in either of two forms that say the same: one of the session era, one
// of 2026-07-28. What it says has odd spacing, large numbers and unknown members, so that it shows who reads and
// writes it anew. Tools: echo tells the params it got; ask asks the user and tells the answer it got.
func playTwin() int {
	in := bufio.NewReader(os.Stdin)
	modern := os.Getenv(matrixEra) == statelessEra
	var asking string // the raw id of the call that has asked
	for {
		line, err := in.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			m, bad := parseMessage(line)
			if bad != nil {
				note("got %q: %v", line, bad)
			}
			var answer string
			switch {
			case m.Method == "" && string(m.ID) == `"q"`:
				answer, asking = twinReply(asking, twinText(m.Result)), ""
			case !modern && twinAsks(m):
				asking = string(m.ID)
				answer = `{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":` + twinQuestion + `}`
			case modern:
				answer = modernTwin(m)
			default:
				answer = legacyTwin(m)
			}
			if answer != "" {
				fmt.Println(answer)
			}
		}
		if err != nil {
			return 0
		}
	}
}

const (
	twinTools = `"tools":[{"name":"echo","description":"<says> & \u00fc ü","inputSchema":{"type":"object","x-order":[3,1,2],"properties":{"n":{"type":"number","maximum":9007199254740993}}},"x-unknown": {"n":9007199254740993,"f":1.10}},` +
		`{"name":"ask","inputSchema":{"type":"object"}}]`
	twinResources = `"resources":[{"name":"big","uri":"twin://big","size":9007199254740993,"x-unknown":[ 1.10 ]}]`
	twinContents  = `"contents":[{"uri":"twin://big","text":"\u003cbig\u003e","x-unknown":1e400}],"x-future": 1.10`
	twinQuestion  = `{"message":"how many?","requestedSchema":{"type":"object","properties":{"n":{"type":"integer","maximum":9007199254740993,"title":"\u00fc"}}},"x-unknown": [ 1.10 ]}`
	// What its results have in the stateless era besides.
	twinModern = `,"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"twin","version":"1"}}`
	twinCached = `,"ttlMs":60000,"cacheScope":"public"`
)

// twinText is a tool's result that quotes raw.
func twinText(raw []byte) string {
	quoted, _ := json.Marshal(string(raw))
	return `"content":[{"type":"text","text":` + string(quoted) + `,"x-unknown": 1.10}],"structuredContent":{"n":9007199254740993, "f":1.10},"x-future": 1e400`
}

func twinReply(id, members string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"result":{` + members + `}}`
}

func twinAsks(m message) bool {
	return m.Method == "tools/call" && strings.Contains(string(m.Params), `"name":"ask"`)
}

// twinSays is what both forms say; "" if the method is unknown.
func twinSays(m message) (members string, cached bool) {
	switch m.Method {
	case "tools/list":
		return twinTools, true
	case "resources/list":
		return twinResources, true
	case "resources/templates/list":
		return `"resourceTemplates":[]`, true
	case "resources/read":
		return twinContents, true
	case "tools/call":
		return twinText(m.Params), false
	}
	return "", false
}

func legacyTwin(m message) string {
	id := string(m.ID)
	switch members, _ := twinSays(m); {
	case m.ID == nil:
		return ""
	case m.Method == "initialize":
		return twinReply(id, `"protocolVersion":"2025-11-25","capabilities":{"tools":{},"resources":{}},"serverInfo":{"name":"twin","version":"1"}`)
	case m.Method == "ping":
		return twinReply(id, "")
	case members != "":
		return twinReply(id, members)
	}
	return `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32601,"message":"no ` + m.Method + `"}}`
}

func modernTwin(m message) string {
	id := string(m.ID)
	var params struct {
		Meta           map[string]json.RawMessage `json:"_meta"`
		InputResponses map[string]json.RawMessage
		RequestState   string
	}
	json.Unmarshal(m.Params, &params)
	switch members, cached := twinSays(m); {
	case m.ID == nil:
		return ""
	case string(params.Meta["io.modelcontextprotocol/protocolVersion"]) != `"`+statelessEra+`"`:
		return `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32602,"message":"a request of another era"}}`
	case m.Method == "server/discover":
		return twinReply(id, `"supportedVersions":["`+statelessEra+`"],"capabilities":{"tools":{},"resources":{}}`+twinCached+twinModern)
	case twinAsks(m) && params.InputResponses == nil:
		return twinReply(id, `"resultType":"input_required","inputRequests":{"count":{"method":"elicitation/create","params":`+twinQuestion+`}},"requestState":"state \u00fc"`)
	case twinAsks(m) && params.RequestState != "state ü":
		return `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32602,"message":"another state"}}`
	case twinAsks(m):
		return twinReply(id, twinText(params.InputResponses["count"])+twinModern)
	case cached:
		return twinReply(id, members+twinCached+twinModern)
	case members != "":
		return twinReply(id, members+twinModern)
	}
	return `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32601,"message":"no ` + m.Method + `"}}`
}

// twin is one of the two as a backend.
func twin(era string) backend {
	b := actor("twin", "twin", "")
	b.Env[matrixEra] = era
	b.Sharing = "session"
	return b
}

// A member is one of an object, with the bytes of its value.
type member struct {
	name string
	raw  string
}

// membersOf are those of an object, in order.
func membersOf(t testing.TB, object []byte) []member {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(object))
	if start, err := dec.Token(); err != nil || start != json.Delim('{') {
		t.Fatalf("not an object: %.200s", object)
	}
	var all []member
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			t.Fatalf("%v: %.200s", err, object)
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			t.Fatalf("%v: %.200s", err, object)
		}
		all = append(all, member{name.(string), string(raw)})
	}
	return all
}
