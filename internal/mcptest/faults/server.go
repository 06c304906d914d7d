package faults

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"mcpgateway/internal/wire"
)

// A server is the common part of stub and HTTPStub: the results without faults, and the choice of
// faults.
type server struct {
	Script
	pid int

	mu           sync.Mutex
	messageCount map[string]int // number of messages per method
	faultCount   map[string]int // number of applications per fault of the script
}

func newServer(s Script, pid int) *server {
	if s.Name == "" {
		s.Name = "stub"
	}
	return &server{
		Script: s, pid: pid,
		messageCount: make(map[string]int), faultCount: make(map[string]int),
	}
}

// dueFaults returns the faults of the script for a message of this method.
func (s *server) dueFaults(method string) (due []Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.messageCount[method]
	s.messageCount[method]++
	for i, f := range s.On[method] {
		key := method + "#" + strconv.Itoa(i)
		if n < f.Skip || f.MaxTimes > 0 && s.faultCount[key] >= f.MaxTimes ||
			!claimOnce(f.OnceFile) {
			continue
		}
		s.faultCount[key]++
		due = append(due, f)
	}
	return due
}

// claimOnce creates the file and reports whether this succeeded: another process may have created
// it. It returns true if path is "".
func claimOnce(path string) bool {
	if path == "" {
		return true
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return false
	}
	f.Close()
	return true
}

// isModern reports whether m is a message of 2026-07-28.
func isModern(m wire.Message) bool {
	meta := m.Part(wire.PartMeta)
	if meta == nil {
		return false
	}
	revision, _ := wire.Lookup(meta, "io.modelcontextprotocol/protocolVersion")
	return revision != nil
}

func (s *server) supportsModern() bool { return s.Generation == "modern" || s.Generation == "both" }

func (s *server) capabilities() string {
	if s.Capabilities != nil {
		return string(s.Capabilities)
	}
	return `{"tools":{"listChanged":true},"logging":{}}`
}

func (s *server) serverInfo() string { return fmt.Sprintf(`{"name":%q,"version":"1"}`, s.Name) }

// result returns the result of a request other than tools/call.
func (s *server) result(m wire.Message) (result []byte, err *wire.Error) {
	method, stateless := m.Method(), isModern(m)
	unknown := wire.Errorf(wire.CodeMethodNotFound, "Method not found: %s", method)
	switch {
	case slices.Contains(s.UnknownMethods, method),
		stateless && !s.supportsModern(),
		!stateless && s.Generation == "modern":
		return nil, unknown
	}
	switch method {
	case "initialize":
		revision := wire.Unquote(param(m, "protocolVersion"))
		if s.Revision != "" {
			revision = s.Revision
		}
		return fmt.Appendf(nil, `{"protocolVersion":%q,"capabilities":%s,"serverInfo":%s}`,
			revision, s.capabilities(), s.serverInfo()), nil
	case "server/discover":
		if !stateless {
			return nil, unknown
		}
		return fmt.Appendf(nil, `{"resultType":"complete","supportedVersions":["2026-07-28"],`+
			`"capabilities":%s,"ttlMs":0,"cacheScope":"public",`+
			`"_meta":{"io.modelcontextprotocol/serverInfo":%s}}`,
			s.capabilities(), s.serverInfo()), nil
	case "ping", "logging/setLevel":
		return []byte(`{}`), nil
	case "tools/list":
		return s.toolsPage(wire.Unquote(m.Part(wire.PartCursor)), stateless), nil
	}
	return nil, unknown
}

func param(m wire.Message, key string) []byte {
	found, _ := wire.Lookup(m.Part(wire.PartParams), key)
	return found
}

// toolsPage returns a page of the tools. cursor is the index of the first tool of the page.
func (s *server) toolsPage(cursor string, stateless bool) []byte {
	names := []string{"echo", "slow", "do"}
	for i := range s.ExtraTools {
		names = append(names, "tool_"+strconv.Itoa(i))
	}
	size := s.PageSize
	if size == 0 {
		size = len(names)
	}
	from, _ := strconv.Atoi(cursor)
	next := from + size
	if s.PageLoop == "endless" {
		for len(names) < next {
			names = append(names, "more_"+strconv.Itoa(len(names)))
		}
	}
	var b strings.Builder
	b.WriteString(`{"tools":[`)
	for i := from; i < min(next, len(names)); i++ {
		if i > from {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"name":%q,"description":"of %s","inputSchema":{"type":"object"}}`,
			names[i], s.Name)
	}
	b.WriteByte(']')
	switch {
	case s.PageLoop == "endless", next < len(names):
		fmt.Fprintf(&b, `,"nextCursor":"%d"`, next)
	case s.PageLoop == "circle":
		b.WriteString(`,"nextCursor":"0"`)
	}
	if stateless {
		b.WriteString(`,"resultType":"complete","ttlMs":0,"cacheScope":"public"`)
	}
	b.WriteByte('}')
	return []byte(b.String())
}

// echoResult returns the result of a tool call. extra contains further members of the structured
// content.
func (s *server) echoResult(m wire.Message, extra string) []byte {
	got := m.Part(wire.PartArguments)
	if got == nil {
		got = []byte("null")
	}
	complete := ""
	if isModern(m) {
		complete = `"resultType":"complete",`
	}
	b := fmt.Appendf(make([]byte, 0, 160+len(got)+len(extra)),
		`{%s"content":[{"type":"text","text":"ok"}],`+
			`"structuredContent":{"stub":%q,"pid":%d%s,"got":`,
		complete, s.Name, s.pid, extra)
	return append(append(b, got...), `}}`...)
}

// slowArguments parses the arguments of slow.
func slowArguments(m wire.Message) (ms, steps int) {
	var a struct{ Ms, Steps int }
	_ = json.Unmarshal(m.Part(wire.PartArguments), &a)
	return a.Ms, a.Steps
}
