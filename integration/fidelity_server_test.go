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

// runFidelityServer is a server without an SDK, over stdio, in two forms with the same content:
// one of 2025-11-25, one of 2026-07-28. Its responses have odd spacing, large numbers and
// unknown members, to detect whether a message is decoded and encoded again. Tools: echo returns
// the params it received; ask sends an elicitation and returns the response it received.
func runFidelityServer() int {
	in := bufio.NewReader(os.Stdin)
	modern := os.Getenv(revisionEnv) == modernRevision
	var asking string // raw id of the call that waits for an elicitation
	for {
		line, err := in.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			m, bad := parseMessage(line)
			if bad != nil {
				note("got %q: %v", line, bad)
			}
			var response string
			switch {
			case m.Method == "" && string(m.ID) == `"q"`:
				response, asking = fidelityResponse(asking, fidelityResult(m.Result)), ""
			case !modern && callsAsk(m):
				asking = string(m.ID)
				response = `{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":` +
					fidelityElicitation + `}`
			case modern:
				response = modernFidelity(m)
			default:
				response = legacyFidelity(m)
			}
			if response != "" {
				fmt.Println(response)
			}
		}
		if err != nil {
			return 0
		}
	}
}

const (
	fidelityTools = `"tools":[{"name":"echo","description":"<says> & \u00fc ü","inputSchema":{"type":"object","x-order":[3,1,2],"properties":{"n":{"type":"number","maximum":9007199254740993}}},"x-unknown": {"n":9007199254740993,"f":1.10}},` +
		`{"name":"ask","inputSchema":{"type":"object"}}]`
	fidelityResources   = `"resources":[{"name":"big","uri":"fidelity://big","size":9007199254740993,"x-unknown":[ 1.10 ]}]`
	fidelityContents    = `"contents":[{"uri":"fidelity://big","text":"\u003cbig\u003e","x-unknown":1e400}],"x-future": 1.10`
	fidelityElicitation = `{"message":"how many?","requestedSchema":{"type":"object","properties":{"n":{"type":"integer","maximum":9007199254740993,"title":"\u00fc"}}},"x-unknown": [ 1.10 ]}`
	// Additional members of its results in 2026-07-28.
	fidelityModernMembers = `,"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"fidelity","version":"1"}}`
	fidelityCacheMembers  = `,"ttlMs":60000,"cacheScope":"public"`
)

// fidelityResult returns the members of a tool's result that quotes raw.
func fidelityResult(raw []byte) string {
	quoted, _ := json.Marshal(string(raw))
	return `"content":[{"type":"text","text":` + string(quoted) +
		`,"x-unknown": 1.10}],"structuredContent":{"n":9007199254740993, "f":1.10},"x-future": 1e400`
}

func fidelityResponse(id, members string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"result":{` + members + `}}`
}

func callsAsk(m message) bool {
	return m.Method == "tools/call" && strings.Contains(string(m.Params), `"name":"ask"`)
}

// fidelityMembers returns the members of the result in both forms; "" if the method is unknown.
func fidelityMembers(m message) (members string, cached bool) {
	switch m.Method {
	case "tools/list":
		return fidelityTools, true
	case "resources/list":
		return fidelityResources, true
	case "resources/templates/list":
		return `"resourceTemplates":[]`, true
	case "resources/read":
		return fidelityContents, true
	case "tools/call":
		return fidelityResult(m.Params), false
	}
	return "", false
}

func legacyFidelity(m message) string {
	id := string(m.ID)
	switch members, _ := fidelityMembers(m); {
	case m.ID == nil:
		return ""
	case m.Method == "initialize":
		return fidelityResponse(id,
			`"protocolVersion":"2025-11-25","capabilities":{"tools":{},"resources":{}},"serverInfo":{"name":"fidelity","version":"1"}`)
	case m.Method == "ping":
		return fidelityResponse(id, "")
	case members != "":
		return fidelityResponse(id, members)
	}
	return `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32601,"message":"no ` + m.Method +
		`"}}`
}

func modernFidelity(m message) string {
	id := string(m.ID)
	var params struct {
		Meta           map[string]json.RawMessage `json:"_meta"`
		InputResponses map[string]json.RawMessage
		RequestState   string
	}
	json.Unmarshal(m.Params, &params)
	switch members, cached := fidelityMembers(m); {
	case m.ID == nil:
		return ""
	case string(params.Meta["io.modelcontextprotocol/protocolVersion"]) != `"`+modernRevision+`"`:
		return `{"jsonrpc":"2.0","id":` + id +
			`,"error":{"code":-32602,"message":"a request of another revision"}}`
	case m.Method == "server/discover":
		return fidelityResponse(id, `"supportedVersions":["`+modernRevision+
			`"],"capabilities":{"tools":{},"resources":{}}`+fidelityCacheMembers+
			fidelityModernMembers)
	case callsAsk(m) && params.InputResponses == nil:
		return fidelityResponse(id,
			`"resultType":"input_required","inputRequests":{"count":{"method":"elicitation/create","params":`+fidelityElicitation+`}},"requestState":"state \u00fc"`)
	case callsAsk(m) && params.RequestState != "state ü":
		return `{"jsonrpc":"2.0","id":` + id +
			`,"error":{"code":-32602,"message":"wrong requestState"}}`
	case callsAsk(m):
		return fidelityResponse(id, fidelityResult(params.InputResponses["count"])+
			fidelityModernMembers)
	case cached:
		return fidelityResponse(id, members+fidelityCacheMembers+fidelityModernMembers)
	case members != "":
		return fidelityResponse(id, members+fidelityModernMembers)
	}
	return `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32601,"message":"no ` + m.Method +
		`"}}`
}

// fidelityBackend returns the server with this revision as a backend.
func fidelityBackend(revision string) backend {
	b := helperBackend("fidelity", "fidelity", "")
	b.Env[revisionEnv] = revision
	b.Sharing = "session"
	return b
}

// A member is one member of an object, with the bytes of its value.
type member struct {
	name string
	raw  string
}

// membersOf returns the members of an object, in order.
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
