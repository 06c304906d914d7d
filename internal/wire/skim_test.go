package wire

import (
	"strings"
	"testing"
)

var skimCases = []struct {
	name, text string
	want       ID
}{
	{"id first", `{"jsonrpc":"2.0","id":42,"method":"m"}`, `42`},
	{"id last", `{"jsonrpc":"2.0","result":{"a":[1,{"id":2}],"b":"}]"},"id":"é"}`, `"é"`},
	{"id in the middle", `{"result":[],"id":-1.5e3,"jsonrpc":"2.0"}`, `-1.5e3`},
	{"white space", " { \"id\"\t:\r\n 7 \n, \"a\" : 1 } ", `7`},
	{"empty string", `{"id":""}`, `""`},
	{"null", `{"id":null}`, `null`},
	{"a key with escapes", `{"\u0069\u0064":1}`, `1`},
	{"an id with escapes", `{"id":"\"}, \"id\":2, {\\"}`, `"\"}, \"id\":2, {\\"`},
	{"only a nested id", `{"params":{"id":1},"result":[{"id":2}]}`, ``},
	{"a nested id after it", `{"id":1,"params":{"id":2,"x":{"id":3}}}`, `1`},
	{"id in strings", `{"a":"\"id\":2","b":"id","id":1,"c":["id",3],"d":"\\"}`, `1`},
	{"another case", `{"ID":1,"Id":2}`, ``},
	{"two ids", `{"id":1,"id":1}`, ``},
	{"valid and invalid id", `{"id":{},"id":1}`, ``},
	{"an object", `{"id":{"id":1}}`, ``},
	{"an array", `{"id":[1]}`, ``},
	{"true", `{"id":true}`, ``},
	{"the longest", `{"id":"` + strings.Repeat("x", maxID-2) + `"}`,
		ID(`"` + strings.Repeat("x", maxID-2) + `"`)},
	{"too long", `{"id":"` + strings.Repeat("x", maxID-1) + `"}`, ``},
	{"far too long", `{"id":"` + strings.Repeat("x\\n", maxID) + `"}`, ``},
	{"after much white space", `{"id":` + strings.Repeat(" ", 2*maxID) + `5` +
		strings.Repeat("\n", 2*maxID) + `}`, `5`},
	{"after a long key", `{"` + strings.Repeat("k", 2*maxID) + `":1,"id":5}`, `5`},
	{"a batch", `[{"id":1}]`, ``},
	{"no message", `"id"`, ``},
	{"a second message", `{"id":1}{"id":2}`, `1`},

	// Invalid JSON must not become an id, because the error response contains the id.
	{"nul", `{"id":nul}`, ``},
	{"nothing", `{"id":}`, ``},
	{"a bare word", `{"id":-x}`, ``},
	{"two numbers", `{"id":1 2}`, ``},
	{"a number and an object", `{"id":1{}}`, ``},
	{"a bad escape", `{"id":"\x"}`, ``},
	{"a control character", "{\"id\":\"\n\"}", ``},
	{"invalid UTF-8", "{\"id\":\"\xff\"}", ``},
	{"cut off in the id", `{"id":12`, ``},
	{"cut off after the id", `{"id":12,"a":{`, `12`},
	{"too many closing braces", `}}{"id":1}`, ``},
	{"two colons", `{"id":1:2}`, ``},
}

// TestSkimmerAtEverySplit writes each text in two pieces, split at every offset.
func TestSkimmerAtEverySplit(t *testing.T) {
	for _, tt := range skimCases {
		for cut := 0; cut <= len(tt.text); cut++ {
			if len(tt.text) > 200 && cut%97 > 1 {
				continue
			}
			var s Skimmer
			s.Write([]byte(tt.text[:cut]))
			s.Write([]byte(tt.text[cut:]))
			if s.ID() != tt.want {
				t.Errorf("%s: cut at %d: got id %s, want %s", tt.name, cut, s.ID(), tt.want)
				break
			}
		}
	}
}

func TestSkimmerByteByByte(t *testing.T) {
	for _, tt := range skimCases {
		var s Skimmer
		for i := range len(tt.text) {
			s.Write([]byte{tt.text[i]})
		}
		if s.ID() != tt.want {
			t.Errorf("%s: got id %s, want %s", tt.name, s.ID(), tt.want)
		}
	}
}

// NewErrorResponse panics on an id that is not JSON.
func TestSkimmerIDIsValid(t *testing.T) {
	for _, tt := range skimCases {
		var s Skimmer
		s.Write([]byte(tt.text))
		same(t, NewErrorResponse(s.ID(), Errorf(CodeInvalidRequest, "too long")))
	}
}

func TestSkimmerIsBounded(t *testing.T) {
	var s Skimmer
	s.Write([]byte(`{"id":1,"` + strings.Repeat("k", 1<<20) + `":"` + strings.Repeat(`v\n`, 1<<20) +
		`","x":` + strings.Repeat(" 1", 1<<20)))
	if n := cap(s.key) + cap(s.value); n > 4*maxID {
		t.Errorf("it holds %d bytes", n)
	}
	if n := testing.AllocsPerRun(10, func() {
		s.Write([]byte(` , "a" : [ { "b" : "c" } ] , "d" : 1 e 5`))
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
