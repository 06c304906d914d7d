package auditchain

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
)

// record returns a record without a link.
func record(i int) string {
	return fmt.Sprintf(`{"time":"2026-01-02T03:04:%02d.000000Z","id":"%d"}`+"\n", i%60, i)
}

// chained returns n linked records.
func chained(n int) []string {
	var l End
	var all []string
	for i := 1; i <= n; i++ {
		all = append(all, string(l.Append(nil, []byte(record(i)))))
	}
	return all
}

// prev is the SHA-256 of the exact bytes of the previous line.
func TestLinkIsTheHashOfThePreviousLine(t *testing.T) {
	all := chained(3)
	if want := `{"time":"2026-01-02T03:04:01.000000Z","id":"1","seq":1,"prev":""}` + "\n"; all[0] != want {
		t.Errorf("got %s, want %s", all[0], want)
	}
	for i, line := range all[1:] {
		want := fmt.Sprintf(`,"seq":%d,"prev":"%x"}`+"\n", i+2,
			sha256.Sum256([]byte(strings.TrimSuffix(all[i], "\n"))))
		if !strings.HasSuffix(line, want) {
			t.Errorf("got %s, want …%s", line, want)
		}
	}
}

// A block of records and single records give the same lines, and an End can be found again in any
// tail that contains the last record.
func TestLinkAfterTail(t *testing.T) {
	all := strings.Join(chained(5), "")
	var blocks End
	var in strings.Builder
	for i := 1; i <= 5; i++ {
		in.WriteString(record(i))
	}
	if got := blocks.Append(nil, []byte(in.String())); string(got) != all {
		t.Errorf("a block gives\n%s, single records\n%s", got, all)
	}
	lastLine := strings.LastIndexByte(all[:len(all)-1], '\n') // its line feed has to be in the tail
	for from := range len(all) {
		l, ok := EndAfter([]byte(all[from:]), from == 0)
		if ok != (from <= lastLine) || ok && l != blocks {
			t.Fatalf("from %d: %v, %v", from, ok, l)
		}
	}
	if l, ok := EndAfter(nil, true); !ok || l != (End{}) || l.Hash() != "" {
		t.Errorf("an empty file: %v, %v", ok, l)
	}
}

// After a line without a link, the next link covers everything since the last linked record.
func TestLinkCoversLinesWithoutLinks(t *testing.T) {
	all := chained(2)
	text := all[0] + all[1] + record(3) + `{"time":"20`
	l, ok := EndAfter([]byte(text), true)
	want := End{2, sha256.Sum256([]byte(text[len(all[0]):])), true}
	if !ok || l != want {
		t.Errorf("got %v, %v", l, ok)
	}
	// without any linked record, it covers the last line
	l, ok = EndAfter([]byte(record(1)+record(2)), true)
	want = End{0, sha256.Sum256(bytes.TrimSpace([]byte(record(2)))), true}
	if !ok || l != want {
		t.Errorf("got %v, %v", l, ok)
	}
}

// Text of clients and backends cannot look like a link.
func TestTextIsNoLink(t *testing.T) {
	for _, line := range []string{
		"", "}", `"}`, `{"a":",\"seq\":1,\"prev\":\"\"}"}`, `{"a":{"b":1,"seq":1,"prev":""}}`,
		`{"a":1,"seq":0,"prev":""}`, `{"a":1,"seq":1,"prev":"ab"}`, `{"a":1,"seq":-1,"prev":""}`,
		`{"a":1,"seq":1,"prev":""} `, `{"a":1,"prev":""}`,
	} {
		if number, prev, ok := parseLink([]byte(line)); ok {
			t.Errorf("%s has the link %d, %s", line, number, prev)
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	var l End
	line := []byte(strings.Replace(record(1), `"id"`, `"x":"`+strings.Repeat("x", 330)+`","id"`, 1))
	var buf []byte
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	for b.Loop() {
		buf = l.Append(buf[:0], line)
	}
}
