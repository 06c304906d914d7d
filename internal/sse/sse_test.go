package sse

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode"

	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/transport"
)

// A short event may be stored for long. It does not keep a long event in memory that was read into
// the same buffer.
func TestShortEventKeepsOnlyItsText(t *testing.T) {
	long, short := strings.Repeat("x", 2<<20), strings.Repeat("y", 5<<10)
	stream := strings.Repeat("data: "+long+"\n\ndata: "+short+"\n\n", 20)
	var stored [][]byte
	before := mcptest.LiveHeap()
	r := NewReader(4<<20, transport.NewReceiveQuota(16<<20, nil))
	r.Open(strings.NewReader(stream)) // each read fills the buffer
	for range 20 {
		if e, err := r.Next(); err != nil || len(e.Data) != len(long) {
			t.Fatalf("got %d bytes, %v", len(e.Data), err)
		}
		e, err := r.Next()
		if err != nil || string(e.Data) != short {
			t.Fatalf("got %d bytes, %v", len(e.Data), err)
		}
		stored = append(stored, e.Data)
	}
	r.Close()
	if kept := mcptest.LiveHeap() - before; kept > 4<<20 {
		t.Errorf("%d bytes are kept", kept)
	}
	runtime.KeepAlive(stored)
	runtime.KeepAlive(stream)
}

func TestEventReader(t *testing.T) {
	tests := []struct {
		name, stream string
		want         []string
	}{
		{"one line", "data: a\n\n", []string{"a"}},
		{"no space after the colon", "data:a\n\n", []string{"a"}},
		{"only one space is dropped", "data:  a\n\n", []string{" a"}},
		{"CR LF", "data: a\r\n\r\ndata: b\r\n\r\n", []string{"a", "b"}},
		{"CR", "data: a\r\rdata: b\r\r", []string{"a", "b"}},
		{"mixed ends", "data: a\r\ndata: b\rdata: c\n\r\n", []string{"a\nb\nc"}},
		{"several lines", "data: {\ndata: \"a\":\ndata: 1}\n\n", []string{"{\n\"a\":\n1}"}},
		{"lines with a comment between", "data: a\n: ping\ndata: b\n\n", []string{"a\nb"}},
		{"a byte order mark", "\xEF\xBB\xBFdata: a\n\n", []string{"a"}},
		{"a byte order mark before a comment", "\xEF\xBB\xBF: hello\n\ndata: a\n\n", []string{"a"}},
		{"unknown fields", "foo: x\ndatum: y\ndata: a\nbar\n\n", []string{"a"}},
		{"no data", ": ping\n\nevent: x\n\nid: 1\n\n\n\n", nil},
		{"empty data", "id: 1\ndata:\n\ndata\n\ndata: a\n\n", []string{"a"}},
		{"two empty lines of data", "data\ndata\n\n", []string{"\n"}},
		{"named message", "event: message\ndata: a\n\n", []string{"message a"}},
		{"named otherwise", "event: ping\ndata: a\n\ndata: b\n\n", []string{"ping a", "b"}},
		{"the last blank line is missing", "data: a\n\ndata: {\ndata: }\n", []string{"a", "{\n}"}},
		{"the last line end is missing", "data: a\n\ndata: [{\"b\":1}]", []string{"a", "[{\"b\":1}]"}},
		{"the end of an object is missing", "data: a\n\ndata: {\"b\":{}", []string{"a"}},
		{"a text may have no end", "data: a\n\ndata: b\n", []string{"a"}},
		{"a number may have no end", "data: a\n\ndata: 1\n", []string{"a"}},
		{"nothing", "", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for name, r := range readers(tt.stream) {
				events, err := readEvents(NewReader(1000, nil), r)
				if err != io.EOF || strings.Join(events, "|") != strings.Join(tt.want, "|") {
					t.Errorf("%s: got %q, %v; want %q", name, events, err, tt.want)
				}
			}
		})
	}
}

// readers returns readers that return the stream in different pieces.
func readers(stream string) map[string]io.Reader {
	return map[string]io.Reader{
		"at once":        strings.NewReader(stream),
		"byte by byte":   iotest.OneByteReader(strings.NewReader(stream)),
		"EOF with bytes": iotest.DataErrReader(strings.NewReader(stream)),
	}
}

// readEvents reads until the stream ends. It returns the data of each event, preceded by the type
// if the event has one.
func readEvents(r *Reader, body io.Reader) (all []string, err error) {
	r.Open(body)
	for {
		e, err := r.Next()
		var large *transport.OversizedError
		switch {
		case errors.As(err, &large):
			all = append(all,
				"too large: "+string(large.Head[:min(10, len(large.Head))])+" id "+string(large.ID))
		case err != nil:
			return all, err
		default:
			all = append(all, strings.TrimPrefix(e.Type+" "+string(e.Data), " "))
		}
	}
}

func TestEventReaderKeepsTheLastEventID(t *testing.T) {
	r := NewReader(1000, nil)
	if r.Retry >= 0 {
		t.Error("retry is set before the server asked for any")
	}
	const first = "id: 1\nretry: 250\ndata: a\n\nid: 2\ndata:\n\nid: bad\x00id\nretry: soon\ndata: b\n\nid: 4\n"
	readEvents(r, strings.NewReader(first))
	if r.LastEventID != "2" || r.Retry != 250*time.Millisecond {
		t.Errorf("lastID %q, retry %v; want 2, because event 4 is incomplete, and 250ms",
			r.LastEventID, r.Retry)
	}
	readEvents(r, strings.NewReader("id: 5\ndata: {\"cut\":"))
	readEvents(r, strings.NewReader("id: 6\ndata: "+strings.Repeat("x", 2000)))
	if r.LastEventID != "2" {
		t.Errorf("lastID %q after incomplete events, want 2", r.LastEventID)
	}
	readEvents(r, strings.NewReader("data: c\n\n"))
	if r.LastEventID != "2" {
		t.Errorf("lastID %q after an event without an id, want 2", r.LastEventID)
	}
	readEvents(r, strings.NewReader("id: bad\x01id\ndata: d\n\n"))
	if r.LastEventID != "" {
		t.Errorf("lastID %q after an id that no header field can have, want none", r.LastEventID)
	}
	readEvents(r, strings.NewReader("id: 5\ndata: d\n\n"))
	readEvents(r, strings.NewReader("id\ndata: d\n\n"))
	if r.LastEventID != "" {
		t.Errorf("lastID %q after an empty id, want none", r.LastEventID)
	}
}

func TestEventReaderDropsTheEndOfABrokenStream(t *testing.T) {
	broken := errors.New("broken")
	stream := io.MultiReader(strings.NewReader("data: a\n\ndata: b\n"), iotest.ErrReader(broken))
	events, err := readEvents(NewReader(1000, nil), stream)
	if err != broken || strings.Join(events, "|") != "a" {
		t.Errorf("got %q, %v", events, err)
	}
}

// A CR ends a line even if nothing follows.
func TestEventReaderDoesNotWaitAfterCR(t *testing.T) {
	pr, pw := io.Pipe()
	defer pw.Close()
	go io.WriteString(pw, "data: a\r\r")
	r := NewReader(1000, nil)
	r.Open(pr)
	if e, err := r.Next(); string(e.Data) != "a" || err != nil {
		t.Errorf("got %q, %v", e.Data, err)
	}
}

func TestEventReaderSkipsOversizedEvents(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	tests := []struct{ name, stream, want string }{
		{"one line", `data: {"a":"` + long + `","id":7}` + "\n\ndata: b\n\n",
			`too large: {"a":"xxxx id 7|b`},
		{"many lines", strings.Repeat("data: 0123456789\n", 20) + "\ndata: b\n\n",
			"too large: 0123456789 id |b"},
		{"just over", "data: " + long[:101] + "\n\ndata: b\n\n", "too large: xxxxxxxxxx id |b"},
		{"just not", "data: " + long[:100] + "\n\n", long[:100]},
		{"at the end", "data: " + long, "too large: xxxxxxxxxx id "},
		{"a comment", "data: a\n: " + long + "\ndata: b\n\n", "a\nb"},
		{"another field", "data: a\nid: " + long + "\n\n", "a"},
		{"then more data", "data: " + long + "\ndata: a\n\ndata: b\n\n",
			"too large: xxxxxxxxxx id |b"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for name, r := range readers(tt.stream) {
				events, err := readEvents(NewReader(100, nil), r)
				if got := strings.Join(events, "|"); err != io.EOF || got != tt.want {
					t.Errorf("%s: got %.200q, %v; want %q", name, got, err, tt.want)
				}
			}
		})
	}
}

// Returned events do not change when further events are read.
func TestEventReaderDoesNotModifyReturnedEvents(t *testing.T) {
	var stream bytes.Buffer
	for i := range 2000 {
		stream.WriteString("data: event number " + strconv.Itoa(i) + "\n\n")
	}
	r := NewReader(1000, nil)
	r.Open(&stream)
	var all [][]byte
	for e, err := r.Next(); err == nil; e, err = r.Next() {
		all = append(all, e.Data)
	}
	for i, data := range all {
		if want := "event number " + strconv.Itoa(i); string(data) != want {
			t.Fatalf("event %d has become %q", i, data)
		}
	}
	if len(all) != 2000 {
		t.Errorf("%d events, want 2000", len(all))
	}
}

// referenceEvents reads the whole stream first and follows the text of the standard, with the
// deviations that [Reader] documents. cut is true if the stream ends within an event.
func referenceEvents(stream string) (all []string, lastID, retry string, cut bool) {
	stream = strings.TrimPrefix(stream, "\uFEFF")
	lines := regexp.MustCompile(`\r\n|\n|\r`).Split(stream, -1)
	if end := len(lines) - 1; lines[end] == "" {
		lines = lines[:end]
	}
	var name, data, id string
	dispatch := func() {
		lastID = id
		if data = strings.TrimSuffix(data, "\n"); data != "" {
			all = append(all, strings.TrimPrefix(name+" "+data, " "))
		}
		name, data = "", ""
	}
	for _, line := range lines {
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			dispatch()
		case field == "data":
			data += value + "\n"
		case field == "event":
			name = value
		case field == "id" && strings.ContainsFunc(value, unicode.IsControl) &&
			!strings.Contains(value, "\x00"):
			id = "" // the id cannot be sent in a header
		case field == "id" && !strings.Contains(value, "\x00"):
			id = value
		case field == "retry" && regexp.MustCompile(`^0*[0-9]{1,9}$`).MatchString(value):
			retry = value
		}
	}
	cut = data != ""
	if regexp.MustCompile(`^[ \t\r\n]*[{\[]`).MatchString(data) && json.Valid([]byte(data)) {
		dispatch()
	}
	return all, lastID, retry, cut
}

func FuzzEventReader(f *testing.F) {
	for _, seed := range []string{
		"data: a\n\n", "\xEF\xBB\xBFdata: a\r\rdata:b\r\n\r\n",
		"id: 1\nretry: 10\ndata\ndata: x\n\n: c\n\n",
		"event: ping\ndata: {}\n\nid:\x00\n\n", "data: x", "\r\n\r\n\n\r",
		"id: 9\ndata: {\ndata: }\n", "id: 1\ndata: a\n\nid: 2\ndata: {\"a\":", "retry:00\ndata:\n\n",
	} {
		f.Add(seed, uint8(3))
	}
	f.Fuzz(func(t *testing.T, stream string, piece uint8) {
		want, lastID, retry, cut := referenceEvents(stream)
		r := NewReader(1<<20, nil)
		got, err := readEvents(r, &chunkedReader{rest: stream, size: int(piece)%7 + 1})
		if err != io.EOF || strings.Join(got, "|") != strings.Join(want, "|") {
			t.Fatalf("got %q, %v; want %q", got, err, want)
		}
		if r.LastEventID != lastID {
			t.Errorf("last id %q, want %q", r.LastEventID, lastID)
		}
		if ms, err := strconv.Atoi(retry); err == nil &&
			r.Retry != time.Duration(ms)*time.Millisecond {
			t.Errorf("retry %v, want %dms", r.Retry, ms)
		}
		small := NewReader(8, nil)
		few, _ := readEvents(small, strings.NewReader(stream))
		if len(few) > len(want)+strings.Count(stream, "data") {
			t.Errorf("%d events, more than the possible %d", len(few), len(want))
		}
		if small.LastEventID != lastID && len(lastID) < 8 && !cut {
			t.Errorf("with a small limit the last id is %q, want %q", small.LastEventID, lastID)
		}
	})
}

// A chunkedReader returns a few bytes at a time.
type chunkedReader struct {
	rest string
	size int
}

func (p *chunkedReader) Read(b []byte) (int, error) {
	n := copy(b[:min(len(b), p.size)], p.rest)
	if p.rest = p.rest[n:]; n == 0 {
		return 0, io.EOF
	}
	return n, nil
}
