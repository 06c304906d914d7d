package faults

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"mcpgateway/internal/wire"
)

// A plan is an answer with deeds done to it: what is written, and what happens
// meanwhile. Stub and twin carry it out each in their way.
type plan struct {
	delay  time.Duration
	stderr int
	forks  []Fault

	before  [][]byte // messages, or what is none, in front of the answer
	between []byte   // what stands between its halves
	answer  []byte   // nil = there is none
	after   [][]byte

	chunk int // bytes that are written at one time; 0 = all
	pause time.Duration

	die  *Fault
	deaf *Fault
	mute *Fault
	ask  *Fault

	stubborn bool

	// Of the twin:
	web  *Fault // status, session, cut, reset or redirect
	kind string // Content-Type
}

const (
	strangeID = "987654321987"
	banner    = "✓ server ready, and this is no JSON"
)

// plan does deeds to the answer to m. other is the id of another request that is being
// answered, "" if there is none.
func (s *server) plan(m wire.Message, deeds []Fault, other wire.ID) plan {
	p := plan{}
	id, more := m.ID(), ""
	var failed *wire.Error
	silent, twice := false, false
	var junk []byte
	for _, d := range deeds {
		switch d.Kind {
		case "delay":
			p.delay += time.Duration(d.Duration)
		case "noise":
			p.noise(d)
		case "chunks":
			p.chunk, p.pause = max(d.Bytes, 1), time.Duration(d.Duration)
		case "stderr":
			p.stderr += d.Bytes
		case "die":
			p.die = &d
		case "deaf":
			p.deaf = &d
		case "mute":
			p.mute = &d
		case "ask":
			p.ask = &d
		case "fork":
			p.forks = append(p.forks, d)
		case "stubborn":
			p.stubborn = true
		case "silent":
			silent = true
		case "id":
			twice = twice || d.How == "twice"
			id = falseID(d.How, id, other)
		case "notify":
			storm := notifications(d, m.Token())
			for range d.times() {
				p.before = append(p.before, storm)
			}
		case "huge":
			more += `,"pad":"` + strings.Repeat("x", d.Bytes) + `"`
		case "utf8":
			more += ",\"bad\":\"\xb0\xa1\""
		case "junk":
			junk = []byte("this is no JSON")
			if d.Text != "" {
				junk = []byte(d.Text)
			}
		case "error":
			failed = wire.Errorf(d.Code, "as asked for")
		case "type":
			p.kind = d.Text
		case "status", "session", "cut", "reset", "redirect":
			p.web = &d
		}
	}
	switch {
	case silent, m.Kind() != wire.Request:
		return p
	case junk != nil:
		p.answer = junk
		return p
	}
	p.answer = s.respond(m, id, failed, more)
	if twice {
		p.after = append(p.after, p.answer)
	}
	return p
}

func (p *plan) noise(d Fault) {
	text := d.Text
	switch {
	case text == "" && d.Where == "between":
		text = "\n" + banner + "\n"
	case text == "":
		text = banner
	}
	for range d.times() {
		switch d.Where {
		case "between":
			p.between = append(p.between, text...)
		case "after":
			p.after = append(p.after, []byte(text))
		default:
			p.before = append(p.before, []byte(text))
		}
	}
}

// respond writes the answer to m under an id. It does not use wire for that, which would
// not write what is no UTF-8.
func (s *server) respond(m wire.Message, id wire.ID, failed *wire.Error, more string) []byte {
	result := []byte(nil)
	switch {
	case failed != nil:
	case m.Method() == "tools/call":
		result = s.echo(m, more)
	default:
		result, failed = s.result(m)
	}
	member, body := "result", result
	if failed != nil {
		member, body = "error", wire.Encode(failed)
	}
	return bytes.Join([][]byte{[]byte(`{"jsonrpc":"2.0","id":`), []byte(id), []byte(`,"` + member + `":`), body, []byte(`}`)}, nil)
}

func falseID(how string, id, other wire.ID) wire.ID {
	switch {
	case how == "unknown":
		return strangeID
	case how == "string":
		return wire.ID(wire.Quote(string(id)))
	case how == "null":
		return "null"
	case how == "other" && other != "":
		return other
	}
	return id
}

// notifications returns one of a storm.
func notifications(d Fault, token wire.ID) []byte {
	switch d.What {
	case "log", "":
		return []byte(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","logger":"storm","data":` + string(wire.Quote(d.Text)) + `}}`)
	case "progress":
		if token == "" {
			token = strangeID
		}
		return fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}`, token)
	case "list_changed":
		return []byte(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","method":%q}`, d.What)
}
