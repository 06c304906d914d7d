package gateway_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// maxFuzzLines bounds the lines sent per fuzz input.
const maxFuzzLines = 40

// nonBlankLines returns the lines of a text that are not blank, at most maxFuzzLines.
func nonBlankLines(text []byte) (all []string) {
	for line := range strings.SplitSeq(string(text), "\n") {
		if strings.TrimSpace(line) != "" && len(all) < maxFuzzLines {
			all = append(all, line)
		}
	}
	return all
}

// countRequests adds the number of responses that a client's line allows for each request id.
func countRequests(line []byte, expected map[wire.ID]int) {
	m, err := wire.Parse(line)
	switch {
	case err != nil:
		var reason *wire.Error
		errors.As(err, &reason)
		expected[transport.NewMalformedError(line, m, reason).ID]++
		expected["null"]++
	case m.Kind() == wire.Request:
		expected[m.ID()]++
	case m.Kind() == wire.Batch:
		expected["null"]++
		for _, e := range m.Elements() {
			countRequests(e, expected)
		}
	}
}

// A fuzzHarness runs a gateway with a client and a backend that send lines of the fuzzer.
type fuzzHarness struct {
	*harness
	client  *mcptest.Peer
	served  chan error
	gh      *mcptest.Peer // the current process, nil before the first
	asked   map[wire.ID]int
	answers map[wire.ID]int
}

func newFuzzHarness(t *testing.T, generation string) *fuzzHarness {
	p := &fuzzHarness{asked: make(map[wire.ID]int), answers: make(map[wire.ID]int)}
	p.harness = newHarness(t, settings{
		singleClient: true, inFlight: 8, grace: time.Second, catalogWait: time.Second,
		startTimeout: 5 * time.Second,
		callTimeout:  map[string]time.Duration{"gh": 5 * time.Second},
		generation:   map[string]string{"gh": generation},
	}, "gh")
	p.client, p.served = p.harness.connectClient()
	return p
}

func (p *fuzzHarness) send(line string) {
	countRequests([]byte(line), p.asked)
	p.client.Send(line)
}

// process returns the running process, nil if there is none.
func (p *fuzzHarness) process() *mcptest.Peer {
	for {
		select {
		case next := <-p.queues["gh"]:
			p.gh = next
		default:
			return p.gh
		}
	}
}

// readClient reads the messages to the client, checks that they are valid, and rejects requests. It
// reports whether there was a message.
func (p *fuzzHarness) readClient() (more bool) {
	for _, line := range p.client.TakeAll() {
		more = true
		m, err := wire.Parse([]byte(line))
		if err != nil || !json.Valid([]byte(line)) {
			p.t.Errorf("the client got a malformed message: %v: %.300s", err, line)
		}
		p.countResponse(m)
	}
	return more
}

func (p *fuzzHarness) countResponse(m wire.Message) {
	switch m.Kind() {
	case wire.Response:
		p.answers[m.ID()]++
	case wire.Request:
		p.client.SendError(m.ID(), `{"code":-1,"message":"no"}`)
	case wire.Batch:
		for _, e := range m.Elements() {
			one, _ := wire.Parse(e)
			p.countResponse(one)
		}
	}
}

// endSession ends the session and checks that no id got more responses than requests, and that the
// audit records have valid outcomes.
func (p *fuzzHarness) endSession() {
	p.client.CloseSend()
	select {
	case <-p.served:
	case <-time.After(time.Hour):
		p.t.Error("Serve does not return")
	}
	p.readClient()
	for id, n := range p.answers {
		if n > p.asked[id] {
			p.t.Errorf("%d responses with the id %s, at most %d allowed", n, id, p.asked[id])
		}
	}
	for _, line := range p.auditRecords() {
		_, outcome, _ := strings.Cut(line, "outcome=")
		outcome, _, _ = strings.Cut(outcome, " ")
		if !strings.Contains(
			" ok tool_error rpc_error cancelled timeout backend_lost not_run rejected ",
			" "+outcome+" ") {
			p.t.Errorf("recorded: %s", line)
		}
	}
}

// answerProcess responds to each request to the process: to initialize and list requests with a
// suitable result, to any other request with its params. It reports whether there was a message.
func (p *fuzzHarness) answerProcess() (more bool) {
	gh := p.process()
	if gh == nil {
		return false
	}
	for _, line := range gh.TakeAll() {
		more = true
		m, err := wire.Parse([]byte(line))
		switch {
		case err != nil:
			p.t.Errorf("the backend got a malformed message: %v: %.300s", err, line)
		case m.Kind() != wire.Request:
		case m.Method() == "initialize":
			gh.SendResult(m.ID(),
				`{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"prompts":{},"resources":{"subscribe":true},"logging":{},"completions":{}},"serverInfo":{"name":"x","version":"1"}}`)
		case strings.HasSuffix(m.Method(), "/list"):
			gh.SendResult(m.ID(),
				`{"tools":[{"name":"t","inputSchema":{"type":"object"}}],"prompts":[{"name":"p"}],"resources":[{"uri":"u:1","name":"r"}],"resourceTemplates":[{"uriTemplate":"u:{x}","name":"rt"}]}`)
		default:
			params := m.Part(wire.PartParams)
			if params == nil {
				params = []byte("{}")
			}
			gh.SendResult(m.ID(), `{"content":[],"params":`+string(params)+`}`)
		}
	}
	return more
}

// FuzzSession tests that, for any lines of a client and any lines of a backend between its
// responses, the output in both directions is JSON-RPC, no id gets more responses than requests,
// and all goroutines end.
func FuzzSession(f *testing.F) {
	const hello = `{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"roots":{},"sampling":{},"elicitation":{}},"clientInfo":{"name":"f","version":"1"}}}` + "\n" +
		`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n" +
		`{"jsonrpc":"2.0","id":1,"method":"tools/list"}` + "\n"
	noise := "✓ ready\n" + `{"jsonrpc":"2.0","id":999,"result":{}}` + "\n" +
		`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}` + "\n" +
		`{"jsonrpc":"2.0","id":3,"method":"roots/list"}`
	for _, lines := range []string{
		hello +
			`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t","arguments":{"a":1},"_meta":{"progressToken":"p"}}}` + "\n" + `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`,
		hello + `{"jsonrpc":"2.0","id":"2","method":"tools/call","params":{"name":"gh__t"}}` +
			"\n" +
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2.0,"reason":{}}}` + "\n" + `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":[],"progress":"x"}}`,
		hello + `{"jsonrpc":"2.0","id":3,"method":"resources/subscribe","params":{"uri":"u:1"}}` +
			"\n" +
			`{"jsonrpc":"2.0","id":4,"method":"logging/setLevel","params":{"level":"debug"}}` +
			"\n" +
			`{"jsonrpc":"2.0","id":5,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":""}}}`,
		strings.Replace(hello, "2025-11-25", "2025-03-26", 1) +
			`[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":1,"method":"ping"},7,{"jsonrpc":"2.0","id":null,"method":"x"},[]]`,
		modernRequest("7", "tools/call", `"name":"t",`, clientCaps) + "\n" +
			modernRequest(`"s"`, "subscriptions/listen",
				`"notifications":{"toolsListChanged":true},`, "{}") + "\n" +
			modernRequest("8", "tasks/get", `"taskId":"x",`, "{}"),
		`{"jsonrpc":"2.0","id":1,"method":"server/discover"}` + "\n{\n" + `{"id":1}` + "\n" +
			`{"jsonrpc":"2.0","id":-1.0e3,"method":"prompts/get","params":{"name":"p","Name":"q"}}`,
		hello + `{"jsonrpc":"2.0","id":6,"method":"resources/read","params":{"uri":"u:\u00e9"}}` +
			"\n" + `{"jsonrpc":"2.0","id":0,"result":{"roots":[]}}` + "\n" +
			`{"jsonrpc":"2.0","id":0,"error":7}` + "\n" + hello,
	} {
		f.Add([]byte(lines), []byte(noise))
		f.Add([]byte(lines), []byte{})
	}
	f.Fuzz(func(t *testing.T, client, backend []byte) {
		synctest.Test(t, func(t *testing.T) {
			p := newFuzzHarness(t, "legacy")
			fields := nonBlankLines(backend)
			settle := func() {
				for p.readClient() || p.answerProcess() {
				}
			}
			for i, line := range nonBlankLines(client) {
				p.send(line)
				settle()
				if gh := p.process(); gh != nil && i < len(fields) {
					gh.Send(fields[i])
					settle()
				}
			}
			for range 3 { // calls time out, backends restart
				time.Sleep(10 * time.Second)
				settle()
			}
			p.endSession()
		})
	})
}

// FuzzBackend tests that each request of a client gets exactly one response, for any output of a
// backend of either generation instead of its responses. "$" in the output is replaced by the id
// of the last request.
func FuzzBackend(f *testing.F) {
	const hello = `{"jsonrpc":"2.0","id":$,"result":` + mcptest.InitializeResult + "}\n"
	tools := `{"jsonrpc":"2.0","id":$,"result":` + mcptest.ToolsResult("t") + "}\n"
	for _, lines := range []string{
		hello + tools + `{"jsonrpc":"2.0","id":$,"result":{"content":[]}}`,
		hello + tools +
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":$,"progress":1}}` + "\n" + `{"jsonrpc":"2.0","id":"$","result":{}}`,
		hello + tools +
			`{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"message":"?"}}` +
			"\n" + `{"jsonrpc":"2.0","id":$,"error":{"code":-32042,"message":"x"}}`,
		hello +
			`{"jsonrpc":"2.0","id":$,"result":{"tools":[{"name":"t"},{"name":"t"},7],"nextCursor":"c"}}` + "\n" + `{"jsonrpc":"2.0","id":$,"result":{"tools":[],"nextCursor":"c"}}`,
		`{"jsonrpc":"2.0","id":$,"result":{"protocolVersion":7,"capabilities":[]}}` + "\n" +
			`{"jsonrpc":"2.0","id":$,"error":{"code":-32601,"message":"no"}}`,
		`{"jsonrpc":"2.0","id":$,"result":` + mcptest.DiscoverResult + "}\n" + tools +
			`{"jsonrpc":"2.0","id":$,"result":{"resultType":"input_required","inputRequests":{"a":{"method":"roots/list"}},"requestState":"s"}}`,
		`{"jsonrpc":"2.0","id":$,"error":{"code":-32022,"message":"v","data":{"supported":["2025-06-18"]}}}` + "\n[" + strings.TrimSpace(hello) + "]\n" + tools,
		hello + tools +
			`{"jsonrpc":"2.0","id":$,"result":{"task":{"taskId":"x","status":"working","createdAt":"","ttl":1,"pollInterval":1}}}` + "\n" + `{"jsonrpc":"2.0","id":$,"result":NaN}`,
	} {
		for generation := range uint8(3) {
			f.Add([]byte(lines), generation)
		}
	}
	f.Fuzz(func(t *testing.T, backend []byte, generation uint8) {
		synctest.Test(t, func(t *testing.T) {
			p := newFuzzHarness(t, []string{"legacy", "modern", "auto"}[generation%3])
			fields, id := nonBlankLines(backend), "0"
			settle := func() {
				for {
					more := p.readClient()
					gh := p.process()
					if gh == nil {
						break
					}
					for _, line := range gh.TakeAll() {
						m, err := wire.Parse([]byte(line))
						if err != nil {
							t.Errorf("the backend got a malformed message: %v: %.300s", err,
								line)
						}
						if more = true; m.Kind() == wire.Request {
							id = string(m.ID())
						}
					}
					if len(fields) == 0 && !more {
						break
					}
					if len(fields) > 0 {
						gh.Send(strings.ReplaceAll(fields[0], "$", id))
						fields = fields[1:]
					}
				}
			}
			p.send(
				`{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"roots":{},"sampling":{},"elicitation":{}},"clientInfo":{"name":"f","version":"1"}}}`)
			p.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
			for i, method := range []string{
				`"tools/list"`, `"tools/call","params":{"name":"t","_meta":{"progressToken":1}}`,
				`"tools/call","params":{"name":"gh__t"}`, `"resources/list"`,
				`"resources/read","params":{"uri":"u:1"}`, `"prompts/get","params":{"name":"p"}`,
				`"resources/subscribe","params":{"uri":"u:1"}`,
				`"logging/setLevel","params":{"level":"info"}`, `"tools/list"`,
			} {
				p.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%s}`, i, method))
				settle()
				if i%3 == 0 {
					time.Sleep(time.Second)
				}
			}
			for range 6 {
				time.Sleep(10 * time.Second)
				settle()
			}
			p.endSession()
			for id := range p.asked {
				if p.answers[id] != 1 {
					t.Errorf("%d answers to %s", p.answers[id], id)
				}
			}
		})
	})
}
