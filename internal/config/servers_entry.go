package config

import (
	"iter"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// theirs is an entry of another client on its way to being one of ours.
type theirs struct {
	values map[string]*yaml.Node // of the keys that have one
	misfit []string              // keys that mean nothing in this entry
	read   []string              // keys that are dealt with already
	off    bool                  // disabled

	urlKey string   // the one that said the URL
	left   []string // what is left out
}

// translate turns the pairs of another client's entry into ours. What it cannot
// turn is named in a warning; an entry that cannot work is disabled, for the sake
// of the others in the file.
func (r *reader) translate(pairs []pair, at place) (ours []pair) {
	e := &theirs{values: map[string]*yaml.Node{}, read: []string{"disabled", "enabled"}}
	for _, p := range pairs {
		if v := deref(p.value); !isAbsent(v) {
			e.values[p.key] = v
		}
	}
	url := slices.ContainsFunc(urlKeys, func(key string) bool { return e.values[key] != nil })
	e.misfit = misfits(e.values["command"] != nil, url)
	for _, key := range transportKeys {
		if n := e.values[key]; n != nil && isSSE(n.Value) && !url {
			e.misfit = append(e.misfit, key)
		}
	}
	if e.off = r.isDisabled(pairs, at); !e.off {
		if why := e.unusable(); why != "" {
			r.warn(at, "is disabled: "+why)
			e.off = true
		}
	}
	if e.off {
		ours = append(ours, pair{"enabled", "enabled", at.line, falsehood()})
	}
	tools, read, wrong := filters(func(key string) *yaml.Node { return e.values[key] })
	if wrong != "" {
		r.fail(at, wrong, "")
	}
	if n := tools.node(at.line); n != nil {
		ours = append(ours, pair{"tools", "tools", at.line, n})
	}
	e.read = append(e.read, read...)
	for _, p := range pairs {
		if p, ok := r.oneKey(p, e, at); ok {
			ours = append(ours, p)
		}
	}
	if len(e.left) > 0 {
		r.warn(at, "the gateway ignores its "+ignored(e.left, e.values["command"] != nil))
	}
	return ours
}

var (
	urlKeys       = []string{"url", "serverUrl", "httpUrl"}
	transportKeys = []string{"type", "transport"}
)

// oneKey translates one pair of e; ok is false if nothing of it remains.
func (r *reader) oneKey(p pair, e *theirs, at place) (_ pair, ok bool) {
	here, value := at.child(p.key, p.shown, p.line), deref(p.value)
	limit := callTimeout(value.Value, r.callUnit)
	switch {
	case saysNothing(value), slices.Contains(e.read, p.key):
	case slices.Contains(e.misfit, p.key):
		e.left = append(e.left, p.shown)
	case p.key == "headers":
		kept, dropped := dropReserved(value)
		e.left = append(e.left, dropped...)
		p.value = kept
		return p, true
	case p.key == "args":
		p.value = keptForProgram(value, e.values["env"])
		return p, true
	case slices.Contains([]string{"command", "env", "cwd"}, p.key):
		return p, true
	case slices.Contains(urlKeys, p.key) && e.urlKey != "":
		r.fail(here, "the URL is already there as "+e.urlKey, "keep one of url, serverUrl and httpUrl")
	case slices.Contains(urlKeys, p.key):
		e.urlKey, p.key = p.shown, "url"
		return p, true
	case slices.Contains(transportKeys, p.key) && isSSE(value.Value):
		return pair{"transport", p.shown, p.line, text("sse")}, true
	case slices.Contains(transportKeys, p.key):
		if problem := unsupported(value.Value); problem != "" && !e.off {
			r.fail(here, problem, "")
		}
	case p.key == "timeout" && limit > 0:
		return pair{"call_timeout", p.shown, p.line, text(limit.String())}, true
	default:
		e.left = append(e.left, p.shown)
	}
	return pair{}, false
}

// isDisabled reads disabled and enabled.
func (r *reader) isDisabled(pairs []pair, at place) bool {
	off := false
	for _, p := range pairs {
		value := deref(p.value)
		switch {
		case p.key != "disabled" && p.key != "enabled", isAbsent(value):
		case value.Value != "true" && value.Value != "false":
			r.fail(at.child(p.key, p.shown, p.line), "must be true or false", "")
		case p.key == "disabled":
			off = off || value.Value == "true"
		default:
			off = off || value.Value == "false"
		}
	}
	return off
}

// unusable says why an entry cannot work behind a gateway, whatever its user
// sets; "" = it can.
func (e *theirs) unusable() string {
	if e.program().isGateway() {
		return "a gateway that starts itself would not stop doing so"
	}
	for _, key := range []string{"url", "serverUrl", "httpUrl"} {
		if n := e.values[key]; n != nil && isOurDoor(n.Value) {
			return "a gateway that asks itself would not stop doing so"
		}
	}
	for _, key := range transportKeys {
		if n := e.values[key]; n != nil && isWebSocket(n.Value) {
			return unsupported(n.Value)
		}
	}
	for _, key := range []string{"command", "args", "env", "cwd", "url", "serverUrl", "httpUrl", "headers"} {
		x := expander{env: anything, foreign: true}
		for text := range texts(e.values[key]) {
			x.expand(text)
		}
		for _, t := range x.wrong {
			if t.theirs {
				return t.problem + "; " + t.hint
			}
		}
	}
	return ""
}

// texts yields the text of n, or those of the values in it. It goes no deeper:
// no entry does, and an alias may lead in circles.
func texts(n *yaml.Node) iter.Seq[string] {
	return func(yield func(string) bool) {
		switch {
		case n == nil:
		case n.Kind == yaml.ScalarNode:
			yield(n.Value)
		case n.Kind == yaml.SequenceNode:
			for _, item := range n.Content {
				if !yield(deref(item).Value) {
					return
				}
			}
		default:
			for _, value := range children(n) {
				if !yield(value.Value) {
					return
				}
			}
		}
	}
}

// unsupported says why a transport, by the name a client gave it, is not
// served; "" = it is.
func unsupported(transport string) string {
	switch plainName(transport) {
	case "", "stdio", "local", "http", "streamablehttp", "sse":
		return ""
	}
	if isWebSocket(transport) {
		return "WebSocket is not supported"
	}
	return "must be stdio, http or sse" + not(transport)
}

func isWebSocket(transport string) bool {
	name := plainName(transport)
	return name == "ws" || name == "websocket"
}

// isSSE tells whether a transport is the one that must be kept. What clients call
// HTTP is left to auto: in their files it is said of servers of either kind.
func isSSE(transport string) bool { return plainName(transport) == "sse" }

func plainName(transport string) string {
	return strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(transport))
}
