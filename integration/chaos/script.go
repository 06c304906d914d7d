//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"mcpgateway/internal/mcptest/faults"
)

// A scriptedCall is a call that depends only on the seed of the client.
type scriptedCall struct {
	n                int // number of the call, per client
	backend          *backend
	tool             string
	args             string
	nonce            string
	token            bool   // request progress
	fault            string // fault to cause; "" = none
	clientFault      string // fault of the client: cancel, vanish or flood; "" = none
	clientFaultDelay time.Duration
	steps            int
}

// A script generates the calls of one client.
type script struct {
	rng        *rand.Rand
	name       string
	backends   []*backend
	exempt     []*backend
	targets    []*backend
	misbehaves bool // this client cancels calls and disconnects
	n          int
}

func newScript(seed uint64, index int, name string, backends []*backend, rude bool) *script {
	s := &script{rng: rand.New(rand.NewPCG(seed, uint64(index))), name: name, backends: backends,
		misbehaves: rude}
	for _, b := range backends {
		if b.isExempt() {
			s.exempt = append(s.exempt, b)
		} else {
			s.targets = append(s.targets, b)
		}
	}
	return s
}

// echo returns a call of echo, a tool of each backend.
func (s *script) echo(b *backend) scriptedCall {
	s.n++
	d := scriptedCall{n: s.n, tool: "echo", backend: b,
		nonce: fmt.Sprintf("%s-%d-%08x", s.name, s.n, s.rng.Uint32())}
	d.args = `{"nonce":` + string(quoted(d.nonce)) + `}`
	if b.role == demo {
		d.args = `{"text":` + string(quoted(d.nonce)) + `}`
	}
	return d
}

// huge returns a call that causes the largest response.
func (s *script) huge(b *backend) scriptedCall {
	d := s.echo(b)
	d.tool, d.fault = "do", "huge"
	d.args = strings.Replace(d.args, "{", fmt.Sprintf(`{"fault":"huge","bytes":%d,`, hugeBytes), 1)
	return d
}

const hugeBytes = 300_000

// faultName returns the name of a fault in the report.
func faultName(f faults.Fault) string {
	switch f.Kind {
	case "die", "cut":
		return f.Kind + " " + f.At
	case "notify", "ask":
		return f.Kind + " " + f.What
	case "status", "session":
		return fmt.Sprintf("%s %d", f.Kind, f.Code)
	case "noise":
		return strings.TrimSpace(f.Kind + " " + f.Where)
	}
	return strings.TrimSpace(f.Kind + " " + f.How)
}

// next returns the next call. share is the percentage of calls with a fault, among the calls to
// backends that are not exempt.
func (s *script) next(share int) scriptedCall {
	s.n++
	d := scriptedCall{n: s.n, tool: "echo",
		nonce: fmt.Sprintf("%s-%d-%08x", s.name, s.n, s.rng.Uint32())}
	if s.rng.IntN(10) < 7 {
		d.backend = s.exempt[s.rng.IntN(len(s.exempt))]
	} else {
		d.backend = s.targets[s.rng.IntN(len(s.targets))]
	}
	if d.backend.role == demo {
		d.args = `{"text":` + string(quoted(d.nonce+s.text())) + `}`
		return d
	}
	more := ""
	roll, faulty := s.rng.IntN(100), s.rng.IntN(100)
	switch {
	case !d.backend.isExempt() && faulty < share:
		f := s.fault(d.backend)
		d.tool, d.fault = "do", faultName(f)
		if f.What == "log" {
			f.Text = d.nonce
		}
		all := []faults.Fault{f}
		if f.Kind == "fork" { // the grandchild must end with its parent
			all = append(all, faults.Fault{Kind: "die", At: "after", By: "kill"})
		}
		text, _ := json.Marshal(all)
		more = `"deeds":` + string(text) + ","
		d.token = s.rng.IntN(2) == 0
	case roll < 15:
		d.tool, d.token, d.steps = "slow", true, s.rng.IntN(4)
		ms := 1 + s.rng.IntN(60)
		more = fmt.Sprintf(`"ms":%d,"steps":%d,`, ms, d.steps)
		if s.misbehaves && share > 0 && s.rng.IntN(2) == 0 {
			d.clientFault = []string{"cancel", "vanish"}[s.rng.IntN(2)]
			d.clientFaultDelay = time.Duration(s.rng.IntN(ms+5)) * time.Millisecond
		}
	}
	d.args = "{" + more + `"nonce":` + string(quoted(d.nonce)) + s.extraMembers() + "}"
	return d
}

// extraMembers returns JSON members of all kinds, in forms that no encoder writes.
func (s *script) extraMembers() string {
	var b strings.Builder
	for i := range s.rng.IntN(5) {
		b.WriteString([]string{",", " , ", ",\t"}[s.rng.IntN(3)])
		b.Write(quoted("k" + strconv.Itoa(9-i) + s.text()))
		b.WriteString([]string{":", " : ", ":  "}[s.rng.IntN(3)])
		b.WriteString(s.value(2))
	}
	return b.String()
}

func (s *script) value(deep int) string {
	switch s.rng.IntN(9) {
	case 0:
		return "9007199254740993"
	case 1:
		return []string{"1e400", "-0", "1.10", "12345678901234567890123", "0.1000",
			"1E-7"}[s.rng.IntN(6)]
	case 2:
		return []string{"true", "false", "null", "{ }", "[ ]", `""`}[s.rng.IntN(6)]
	case 3:
		if deep > 0 {
			return "[ " + s.value(deep-1) + " ,\t" + s.value(deep-1) + "]"
		}
	case 4:
		if deep > 0 {
			return `{"z": ` + s.value(deep-1) + ` , "a":` + s.value(deep-1) + `}`
		}
	case 5: // in rare cases, a large string
		if s.rng.IntN(60) == 0 {
			return `"` + strings.Repeat("0123456789abcdef", 1<<(4+s.rng.IntN(10))) + `"`
		}
	}
	return string(quoted(s.text()))
}

var textSamples = []string{`<a href="x">&amp;</a>`, "\u2028\u2029", "ünïcödé 漢字 😀",
	"\u0000\u001f\n\r\t", "\\ \" / \b\f", "\u202e", "e\u0301", "id", "_meta", ""}

func (s *script) text() string { return textSamples[s.rng.IntN(len(textSamples))] }

// quoted returns a JSON string in which some characters are escaped without need.
func quoted(text string) []byte {
	b := []byte{'"'}
	for i, r := range text {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r < ' ', r == '/' && i%2 == 0, r > 126 && r < 0x10000 && i%3 == 0:
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			b = append(b, string(r)...)
		}
	}
	return append(b, '"')
}

// fault returns a random fault that the backend supports.
func (s *script) fault(b *backend) faults.Fault {
	all := stdioFaults
	switch {
	case b.http && b.modern: // a modern server has no sessions to lose
		all = slices.DeleteFunc(slices.Clone(httpFaults),
			func(d faults.Fault) bool { return d.Kind == "session" })
	case b.role == crashing && s.rng.IntN(3) == 0:
		all = crashFaults
	case b.http:
		all = httpFaults
	}
	return all[s.rng.IntN(len(all))]
}

const ms = faults.Duration(time.Millisecond)

var stdioFaults = []faults.Fault{
	{Kind: "delay", Duration: 20 * ms},
	{Kind: "delay", Duration: 100 * ms},
	{Kind: "noise"},
	{Kind: "noise", Times: 3, Text: "{ \"level\": \"info\", \"msg\": \"listening\" }"},
	{Kind: "noise", Where: "after"},
	{Kind: "noise", Where: "between"},
	{Kind: "chunks", Bytes: 40, Duration: ms},
	{Kind: "stderr", Bytes: 20_000},
	{Kind: "silent"},
	{Kind: "id", How: "unknown"},
	{Kind: "id", How: "string"},
	{Kind: "id", How: "null"},
	{Kind: "id", How: "twice"},
	{Kind: "notify", What: "log", Times: 20},
	{Kind: "notify", What: "progress", Times: 20},
	{Kind: "notify", What: "list_changed", Times: 20},
	{Kind: "notify", What: "window/logMessage"},
	{Kind: "huge", Bytes: hugeBytes},
	{Kind: "utf8"},
	{Kind: "junk"},
	{Kind: "junk", Text: `{"jsonrpc":"2.0","id":`},
	{Kind: "error", Code: requestedError},
	{Kind: "ask", What: "sampling/createMessage", Text: `{"messages":[],"maxTokens":1}`},
	{Kind: "ask", What: "roots/list"},
	{Kind: "ask", What: "ping"},
	{Kind: "deaf", Duration: 100 * ms},
	{Kind: "mute", Duration: 100 * ms},
}

var crashFaults = []faults.Fault{
	{Kind: "die", At: "reading"},
	{Kind: "die", At: "reading", By: "kill"},
	{Kind: "die", At: "before", Code: 1},
	{Kind: "die", At: "middle", By: "kill"},
	{Kind: "die", At: "middle"},
	{Kind: "die", At: "after", By: "kill"},
	{Kind: "fork", How: "normal"},
	{Kind: "fork", How: "stubborn"},
	{Kind: "fork", How: "setsid"},
}

var httpFaults = []faults.Fault{
	{Kind: "delay", Duration: 50 * ms},
	{Kind: "noise"},
	{Kind: "noise", Where: "between"},
	{Kind: "chunks", Bytes: 100, Duration: ms},
	{Kind: "silent"},
	{Kind: "id", How: "unknown"},
	{Kind: "id", How: "twice"},
	{Kind: "id", How: "null"},
	{Kind: "notify", What: "log", Times: 20},
	{Kind: "notify", What: "progress", Times: 20},
	{Kind: "huge", Bytes: hugeBytes},
	{Kind: "utf8"},
	{Kind: "junk"},
	{Kind: "error", Code: requestedError},
	{Kind: "die", At: "reading"},
	{Kind: "die", At: "before"},
	{Kind: "die", At: "middle"},
	{Kind: "die", At: "after"},
	{Kind: "cut", At: "before"},
	{Kind: "cut", At: "middle"},
	{Kind: "cut", At: "after"},
	{Kind: "reset"},
	{Kind: "redirect"},
	{Kind: "type", Text: "text/plain"},
	{Kind: "type", Text: "application/octet-stream"},
	{Kind: "session", Code: 404},
	{Kind: "session", Code: 400},
	{Kind: "session", Code: 200},
	{Kind: "status", Code: 400},
	{Kind: "status", Code: 401},
	{Kind: "status", Code: 404},
	{Kind: "status", Code: 405},
	{Kind: "status", Code: 408},
	{Kind: "status", Code: 429, RetryAfter: "1"},
	{Kind: "status", Code: 500},
	{Kind: "status", Code: 502},
	{Kind: "status", Code: 503, RetryAfter: "1"},
	{Kind: "status", Code: 504},
	{Kind: "status", Code: 200},
}

// requestedError is the code of errors that a call requests from a backend.
const requestedError = -7777
