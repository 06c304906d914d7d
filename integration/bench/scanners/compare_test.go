package scanners

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
)

const (
	before = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"gh__search","arguments":`
	after  = `,"_meta":{"progressToken":"p"}}}`
)

// call returns a call whose arguments repeat unit and have about n bytes.
func call(open, unit, between, end string, n int) []byte {
	units := slices.Repeat([]string{unit}, max(1, n/(len(unit)+len(between))))
	return []byte(before + open + strings.Join(units, between) + end + after)
}

var shapes = []struct {
	name string
	make func(n int) []byte
}{
	{"text", func(n int) []byte {
		return call(`{"text":"`,
			`The quick brown fox jumps over the lazy dog, as is written in line 17.\n`, "", `"}`, n)
	}},
	{"code", func(n int) []byte {
		return call(`{"text":"`, `if err != nil {\n\t\treturn \"\"\n\t}\n`, "", `"}`, n)
	}},
	{"base64", func(n int) []byte {
		return call(`{"blob":"`,
			base64.StdEncoding.EncodeToString([]byte("any bytes that are a picture")[:24]), "",
			`"}`, n)
	}},
	{"german", func(n int) []byte {
		return call(`{"text":"`, `Über allen Gipfeln ist Ruh, `, "", `"}`, n)
	}},
	{"chinese", func(n int) []byte { return call(`{"text":"`, `天地玄黄宇宙洪荒`, "", `"}`, n) }},
	{"structure", func(n int) []byte {
		return call(`[`,
			`{"id":12345,"ok":true,"path":"src/a.go","score":0.25,"tags":["a","bc"],"next":null}`,
			",", `]`, n)
	}},
}

var sizes = []struct {
	name  string
	bytes int
}{{"32B", 32}, {"4KiB", 4 << 10}, {"64KiB", 64 << 10}, {"1MiB", 1 << 20}}

func TestAllFindTheSame(t *testing.T) {
	for _, shape := range shapes {
		for _, size := range sizes {
			text := shape.make(size.bytes)
			for _, s := range scanners {
				p, ok := s.find(text)
				if got := fmt.Sprintf("%s %s %s %s", p.id, p.method, p.name, p.token); !ok ||
					got != `7 "tools/call" "gh__search" "p"` {
					t.Errorf("%s %s: %s finds %s, %v", size.name, shape.name, s.name, got, ok)
				}
			}
		}
	}
}

func Benchmark(b *testing.B) {
	for _, size := range sizes {
		for _, shape := range shapes {
			text := shape.make(size.bytes)
			for _, s := range scanners {
				b.Run(size.name+"/"+shape.name+"/"+s.name, func(b *testing.B) {
					b.SetBytes(int64(len(text)))
					b.ReportAllocs()
					for b.Loop() {
						if _, ok := s.find(text); !ok {
							b.Fatal("refused")
						}
					}
				})
			}
		}
	}
}

// TestInvalidInput lists input that the gateway must accept (the first four texts) or reject, and
// the scanners that accept it. If two members have the same key, a scanner may use one member and
// the backend the other.
func TestInvalidInput(t *testing.T) {
	deep := strings.Repeat("[", 1001) + strings.Repeat("]", 1001)
	for _, c := range []struct{ what, text, by string }{
		{"a call", before + `{}` + after, `wire json jsontext jsontext-dup gjson sonic`},
		{"a lone surrogate", before + `"\ud800"` + after, `wire json gjson sonic`},
		{"arguments with a name twice", before + `{"a":1,"a":1}` + after,
			`wire json jsontext-dup gjson sonic`},
		{"a huge number", before + `1e400` + after, `wire json jsontext jsontext-dup gjson sonic`},
		{"two ids", `{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}`,
			`json jsontext-dup gjson sonic`},
		{"two ids, one escaped", `{"jsonrpc":"2.0","id":1,"\u0069d":2,"method":"m"}`,
			`json jsontext-dup gjson sonic`},
		{"two names", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"a","name":"b"}}`,
			`json jsontext-dup gjson sonic`},
		{"Method beside method", `{"jsonrpc":"2.0","id":1,"method":"m","Method":"n"}`,
			`json jsontext jsontext-dup gjson sonic`},
		{"Name alone", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"Name":"b"}}`,
			`json jsontext jsontext-dup gjson sonic`},
		{"no UTF-8",
			"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":{\"name\":\"\xff\"}}",
			`json gjson sonic`},
		{"a line break in a string",
			"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":{\"name\":\"\n\"}}",
			`sonic`},
		{"text behind the end", `{"jsonrpc":"2.0","id":1,"method":"m"}{}`, ``},
		{"depth 1001", before + deep + after, `json jsontext jsontext-dup gjson sonic`},
		{"depth 100,000", before + strings.Repeat(deep[:100], 1000) + strings.Repeat("]", 100_000) +
			after, `gjson`},
		{"a leading zero", `{"jsonrpc":"2.0","id":01,"method":"m"}`, ``},
		{"no version", `{"id":1,"method":"m"}`, `json jsontext jsontext-dup gjson sonic`},
		{"an id that is an object", `{"jsonrpc":"2.0","id":{},"method":"m"}`,
			`json jsontext jsontext-dup gjson sonic`},
	} {
		var by []string
		for _, s := range scanners {
			if _, ok := s.find([]byte(c.text)); ok {
				by = append(by, s.name)
			}
		}
		t.Logf("%-27s %v", c.what, by)
		if got := strings.Join(by, " "); got != c.by {
			t.Errorf("%s: accepted by %s; want %s", c.what, got, c.by)
		}
	}
}
