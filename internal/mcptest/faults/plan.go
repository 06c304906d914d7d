package faults

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"mcpgateway/internal/wire"
)

// A responsePlan is a response with its faults: the bytes to write and the actions around them.
// stub and HTTPStub execute it.
type responsePlan struct {
	delay       time.Duration
	stderrBytes int
	forks       []Fault

	before   [][]byte // messages or noise before the response
	between  []byte   // inserted in the middle of the response
	response []byte   // nil = none
	after    [][]byte // messages or noise after the response

	chunkSize  int // bytes per write; 0 = all bytes
	chunkPause time.Duration

	die         *Fault
	stopReading *Fault
	mute        *Fault
	request     *Fault

	ignoreStop bool

	// HTTPStub only:
	httpFault   *Fault // status, session, cut, reset or redirect
	contentType string // Content-Type
}

const (
	unknownID = "987654321987"
	banner    = "✓ server ready, and this is no JSON"
)

// plan applies faults to the response to m. other is the id of another request in flight; "" =
// none.
func (s *server) plan(m wire.Message, faults []Fault, other wire.ID) responsePlan {
	p := responsePlan{}
	id, extra := m.ID(), ""
	var rpcErr *wire.Error
	silent, twice := false, false
	var junk []byte
	for _, f := range faults {
		switch f.Kind {
		case "delay":
			p.delay += time.Duration(f.Duration)
		case "noise":
			p.addNoise(f)
		case "chunks":
			p.chunkSize, p.chunkPause = max(f.Bytes, 1), time.Duration(f.Duration)
		case "stderr":
			p.stderrBytes += f.Bytes
		case "die":
			p.die = &f
		case "deaf":
			p.stopReading = &f
		case "mute":
			p.mute = &f
		case "ask":
			p.request = &f
		case "fork":
			p.forks = append(p.forks, f)
		case "stubborn":
			p.ignoreStop = true
		case "silent":
			silent = true
		case "id":
			twice = twice || f.How == "twice"
			id = wrongID(f.How, id, other)
		case "notify":
			message := notification(f, m.Token())
			for range f.times() {
				p.before = append(p.before, message)
			}
		case "huge":
			extra += `,"pad":"` + strings.Repeat("x", f.Bytes) + `"`
		case "utf8":
			extra += ",\"bad\":\"\xb0\xa1\""
		case "junk":
			junk = []byte("this is no JSON")
			if f.Text != "" {
				junk = []byte(f.Text)
			}
		case "error":
			rpcErr = wire.Errorf(f.Code, "as asked for")
		case "type":
			p.contentType = f.Text
		case "status", "session", "cut", "reset", "redirect":
			p.httpFault = &f
		}
	}
	switch {
	case silent, m.Kind() != wire.Request:
		return p
	case junk != nil:
		p.response = junk
		return p
	}
	p.response = s.respond(m, id, rpcErr, extra)
	if twice {
		p.after = append(p.after, p.response)
	}
	return p
}

func (p *responsePlan) addNoise(f Fault) {
	text := f.Text
	switch {
	case text == "" && f.Where == "between":
		text = "\n" + banner + "\n"
	case text == "":
		text = banner
	}
	for range f.times() {
		switch f.Where {
		case "between":
			p.between = append(p.between, text...)
		case "after":
			p.after = append(p.after, []byte(text))
		default:
			p.before = append(p.before, []byte(text))
		}
	}
}

// respond returns the response to m with the given id. extra contains further members of the
// result. It does not use package wire, which cannot write invalid UTF-8.
func (s *server) respond(m wire.Message, id wire.ID, rpcErr *wire.Error, extra string) []byte {
	result := []byte(nil)
	switch {
	case rpcErr != nil:
	case m.Method() == "tools/call":
		result = s.echoResult(m, extra)
	default:
		result, rpcErr = s.result(m)
	}
	member, body := "result", result
	if rpcErr != nil {
		member, body = "error", wire.Encode(rpcErr)
	}
	return bytes.Join([][]byte{
		[]byte(`{"jsonrpc":"2.0","id":`), []byte(id),
		[]byte(`,"` + member + `":`), body, []byte(`}`),
	}, nil)
}

func wrongID(how string, id, other wire.ID) wire.ID {
	switch {
	case how == "unknown":
		return unknownID
	case how == "string":
		return wire.ID(wire.Quote(string(id)))
	case how == "null":
		return "null"
	case how == "other" && other != "":
		return other
	}
	return id
}

// notification returns one of the notifications of a notify fault.
func notification(f Fault, token wire.ID) []byte {
	switch f.What {
	case "log", "":
		return []byte(`{"jsonrpc":"2.0","method":"notifications/message",` +
			`"params":{"level":"error","logger":"storm",` +
			`"data":` + string(wire.Quote(f.Text)) + `}}`)
	case "progress":
		if token == "" {
			token = unknownID
		}
		return fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/progress",`+
			`"params":{"progressToken":%s,"progress":1}}`, token)
	case "list_changed":
		return []byte(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","method":%q}`, f.What)
}
