package catalog

import (
	"errors"
	"fmt"
	"strings"

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

const (
	// maxListed bounds the entries of one page that are read. A tool costs some
	// hundred bytes of memory, however short its text.
	maxListed = 10_000
	// maxOwn bounds a tool's own name, in bytes; MCP has 128 for it.
	maxOwn = 1024
)

// ParsePage reads the result of a tools/list. A tool that no client could bear
// is mended where the mend is certain, and otherwise left out; either is told in
// Flaws. An error means that the result is no list of tools at all.
//
// The tools keep result, which must not be changed afterwards.
func ParsePage(result []byte) (Page, error) {
	var page Page
	var list []byte
	ok := wire.Members(result, func(key string, value []byte, _ int) {
		switch key {
		case "tools":
			list = value
		case "nextCursor":
			page.Next = cursor(value)
		}
	})
	if !ok || len(list) == 0 || list[0] != '[' {
		return Page{}, errors.New(`the result of tools/list has no array "tools"`)
	}
	n := 0
	wire.EachElement(list, func(raw []byte) bool {
		t, flaw := parseTool(raw)
		if n == maxListed {
			t, flaw = Tool{}, Flaw{What: "it and what follows are too many for one page"}
		}
		if flaw.What == "" || flaw.Mended {
			page.Tools = append(page.Tools, t)
		}
		if flaw.What != "" {
			if flaw.Tool = t.Own; t.Own == "" {
				flaw.Tool = fmt.Sprintf("tools[%d]", n)
			}
			page.Flaws = append(page.Flaws, flaw)
		}
		n++
		return n <= maxListed
	})
	return page, nil
}

// cursor returns value if a next page can be asked for with it. An empty string
// can be, too: what a cursor is made of is the server's business.
func cursor(value []byte) []byte {
	if c := value[0]; c == '"' || c == '-' || '0' <= c && c <= '9' {
		return value
	}
	return nil
}

// The members of a tool that are looked at.
const (
	toolName = iota
	toolInput
	toolOutput
	numLooked
)

var looked = [numLooked]string{"name", "inputSchema", "outputSchema"}

func parseTool(raw []byte) (Tool, Flaw) {
	var value [numLooked][]byte
	var at [numLooked]int
	twice := ""
	isObject := wire.Members(raw, func(key string, v []byte, offset int) {
		for i, name := range looked {
			switch {
			case !strings.EqualFold(key, name): // some clients take Name for name
			case value[i] != nil || key != name:
				twice = name
			default:
				value[i], at[i] = v, offset
			}
		}
	})
	t := Tool{Own: wire.Unquote(value[toolName]), raw: raw, name: value[toolName], nameAt: at[toolName]}
	output := value[toolOutput]
	switch {
	case !isObject:
		return Tool{}, Flaw{What: "it is no object"}
	case t.Own == "":
		return Tool{}, Flaw{What: "it has no name"}
	case len(t.Own) > maxOwn:
		return Tool{}, Flaw{What: fmt.Sprintf("its name has more than %d bytes", maxOwn)}
	case twice != "":
		return t, Flaw{What: "its " + twice + " stands twice, or in another case"}
	case output != nil && !wire.IsObject(output):
		return t, Flaw{What: "its outputSchema is no object"}
	}
	return t.mendInput(value[toolInput], at[toolInput])
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
	var kinds []string
	members := 0
	wire.Members(schema, func(key string, value []byte, _ int) {
		if members++; key == "type" {
			kinds = append(kinds, wire.Unquote(value))
		}
	})
	switch {
	case len(kinds) == 1 && kinds[0] == "object":
		return t, Flaw{}
	case len(kinds) > 0:
		return t, Flaw{What: `its inputSchema is not of type "object" alone`}
	}
	text := object
	if members > 0 {
		text += ","
	}
	return t.replaced(at+1, at+1, text), Flaw{What: "its inputSchema had no type", Mended: true}
}

// replaced returns the tool with raw[lo:hi], which does not hold the name,
// exchanged.
func (t Tool) replaced(lo, hi int, text string) Tool {
	raw := make([]byte, 0, len(t.raw)+len(text))
	raw = append(append(append(raw, t.raw[:lo]...), text...), t.raw[hi:]...)
	if t.nameAt >= hi {
		t.nameAt += len(text) - (hi - lo)
	}
	t.raw = raw
	t.name = raw[t.nameAt : t.nameAt+len(t.name) : t.nameAt+len(t.name)]
	return t
}
