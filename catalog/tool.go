package catalog

import (
	"fmt"

	"mcpgateway/wire"
)

// A Tool is one entry of a backend's tools/list, in the backend's own bytes.
type Tool struct {
	Own string // its own name

	raw    []byte // the object
	name   []byte // the name's literal
	nameAt int    // where that stands in raw
}

// Raw returns the entry's bytes, which must not be changed.
func (t Tool) Raw() []byte { return t.raw }

// Description returns the tool's description, for people.
func (t Tool) Description() string {
	text := ""
	wire.Members(t.raw, func(key string, value []byte, _ int) {
		if key == "description" {
			text = wire.Unquote(value)
		}
	})
	return text
}

// as appends the entry to b under another name.
func (t Tool) as(b []byte, exposed string) []byte {
	if exposed == t.Own {
		return append(b, t.raw...)
	}
	b = append(append(b, t.raw[:t.nameAt]...), wire.Quote(exposed)...)
	return append(b, t.raw[t.nameAt+len(t.name):]...)
}

// A Flaw is something wrong with a tool that a backend lists.
type Flaw struct {
	Tool   string // its own name, or its place in the list if it has none
	What   string
	Mended bool // else the tool was left out
}

// Page is one answer to tools/list.
type Page struct {
	Tools []Tool
	Flaws []Flaw
	Next  []byte // the cursor of the page that follows, as JSON; nil on the last one
}

// ParsePage reads the result of a tools/list. A tool that no client could bear
// is mended where the mend is certain, and otherwise left out; either is told in
// Flaws. An error means that the result is no list of tools at all.
//
// The tools keep result, which must not be changed afterwards.
func ParsePage(result []byte) (Page, error) {
	var page Page
	var list []byte
	ok := wire.Members(result, func(key string, value []byte, _ int) {
		switch {
		case key == "tools":
			list = value
		case key == "nextCursor" && !wire.IsNull(value):
			page.Next = value
		}
	})
	if !ok || len(list) == 0 || list[0] != '[' {
		return Page{}, fmt.Errorf(`the result of tools/list has no array "tools"`)
	}
	for i, raw := range wire.Elements(list) {
		t, flaw := parseTool(raw)
		if flaw.What == "" || flaw.Mended {
			page.Tools = append(page.Tools, t)
		}
		if flaw.What != "" {
			if flaw.Tool = t.Own; t.Own == "" {
				flaw.Tool = fmt.Sprintf("tools[%d]", i)
			}
			page.Flaws = append(page.Flaws, flaw)
		}
	}
	return page, nil
}

func parseTool(raw []byte) (Tool, Flaw) {
	t := Tool{raw: raw}
	var input, output []byte
	names, inputAt := 0, 0
	isObject := wire.Members(raw, func(key string, value []byte, at int) {
		switch key {
		case "name":
			t.name, t.nameAt = value, at
			names++
		case "inputSchema":
			input, inputAt = value, at
		case "outputSchema":
			output = value
		}
	})
	t.Own = wire.Unquote(t.name)
	switch {
	case !isObject:
		return Tool{}, Flaw{What: "it is no object"}
	case t.Own == "" || names > 1:
		return Tool{}, Flaw{What: "it has no name, or no single one"}
	case output != nil && !wire.IsObject(output):
		return t, Flaw{What: "its outputSchema is no object"}
	}
	return t.mendInput(input, inputAt)
}

const object = `"type":"object"`

// mendInput sees to it that inputSchema is an object with "type": "object", as
// every revision of MCP asks ("tools", data types).
func (t Tool) mendInput(schema []byte, at int) (Tool, Flaw) {
	switch {
	case schema == nil:
		end := len(t.raw) - 1
		return t.replaced(end, end, `,"inputSchema":{`+object+`}`), Flaw{What: "it had no inputSchema", Mended: true}
	case wire.IsNull(schema):
		return t.replaced(at, at+len(schema), `{`+object+`}`), Flaw{What: "its inputSchema was null", Mended: true}
	case !wire.IsObject(schema):
		return t, Flaw{What: "its inputSchema is no object"}
	}
	var kind []byte
	empty := true
	wire.Members(schema, func(key string, value []byte, _ int) {
		empty = false
		if key == "type" {
			kind = value
		}
	})
	switch {
	case wire.Unquote(kind) == "object":
		return t, Flaw{}
	case kind != nil:
		return t, Flaw{What: "its inputSchema has the type " + string(kind[:min(len(kind), 40)])}
	}
	text := object + ","
	if empty {
		text = object
	}
	return t.replaced(at+1, at+1, text), Flaw{What: "its inputSchema had no type", Mended: true}
}

// replaced returns the tool with raw[lo:hi] exchanged.
func (t Tool) replaced(lo, hi int, text string) Tool {
	raw := make([]byte, 0, len(t.raw)+len(text))
	raw = append(append(append(raw, t.raw[:lo]...), text...), t.raw[hi:]...)
	mended, _ := parseTool(raw)
	return mended
}
