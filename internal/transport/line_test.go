package transport

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"mcpgateway/internal/wire"
)

// lines reads a stream to its end and returns a description of each line.
func lines(l *LineReader) (all []string) {
	var kept []wire.Message
	defer func() {
		for i := range all {
			if all[i] == "" {
				all[i], kept = string(kept[0].Raw()), kept[1:]
			}
		}
	}()
	for {
		m, err := l.ReadMessage()
		var malformed *MalformedError
		switch {
		case err == nil:
			kept, all = append(kept, m), append(all, "")
		case errors.As(err, &malformed):
			all = append(all,
				fmt.Sprintf("malformed %d id=%s %.20s", malformed.Err.Code, malformed.ID,
					malformed.Text))
		case err == io.EOF:
			return all
		default:
			return append(all, err.Error())
		}
	}
}

const (
	note  = `{"jsonrpc":"2.0","method":"a"}`
	quest = `{"jsonrpc":"2.0","id":7,"method":"b"}`
)

func TestLinesAreMessages(t *testing.T) {
	for name, tt := range map[string]struct {
		in   string
		want []string
	}{
		"one":                      {note + "\n", []string{note}},
		"the last without its end": {note + "\n" + quest, []string{note, quest}},
		"CRLF":                     {note + "\r\n" + quest + "\r\n", []string{note, quest}},
		"blank lines":              {"\n\r\n  \t\n" + note + "\n\n\n", []string{note}},
		"a byte order mark":        {"\uFEFF" + note + "\n" + quest + "\n", []string{note, quest}},
		"F-DOOR-3 a mark per line": {note + "\n\uFEFF" + quest + "\r\n\uFEFF\n\uFEFF" + note,
			[]string{note, quest, note}},
		"a mark within a line": {"{\uFEFF}\n", []string{"malformed -32700 id= {\uFEFF}"}},
		"FRAME_01 a banner": {"✓ server ready\n\n" + note + "\n",
			[]string{"malformed -32700 id= ✓ server ready", note}},
		"JSON that is no message": {`{"id":"x","method":1}` + "\n" + note + "\n",
			[]string{`malformed -32600 id="x" {"id":"x","method":1`, note}},
		"a batch":               {"[" + note + "]\n", []string{"[" + note + "]"}},
		"nothing":               {"", nil},
		"an end in mid-message": {`{"jsonrpc":`, []string{`malformed -32700 id= {"jsonrpc":`}},
		"a string with a line mark": {`{"jsonrpc":"2.0","method":"a\n"}` + "\n",
			[]string{`{"jsonrpc":"2.0","method":"a\n"}`}},
	} {
		t.Run(name, func(t *testing.T) {
			for how, r := range map[string]io.Reader{
				"at once":     strings.NewReader(tt.in),
				"in bytes":    iotest.OneByteReader(strings.NewReader(tt.in)),
				"in halves":   iotest.HalfReader(strings.NewReader(tt.in)),
				"end at once": iotest.DataErrReader(strings.NewReader(tt.in)),
			} {
				got := lines(&LineReader{r: r, limit: 1 << 20})
				if fmt.Sprint(got) != fmt.Sprint(tt.want) {
					t.Errorf("%s:\ngot  %q\nwant %q", how, got, tt.want)
				}
			}
		})
	}
}

// FRAME-04: lines of every length up to the limit are returned completely.
func TestFRAME_04_LinesOfAnyLengthUpToTheLimit(t *testing.T) {
	for _, size := range []int{4096, 64<<10 - 1, 64 << 10, 64<<10 + 1, 1 << 20, 10 << 20} {
		m := wire.NewResult("1", wire.Quote(strings.Repeat("x", size)))
		text := append(bytes.Clone(m.Raw()), '\n')
		l := &LineReader{r: bytes.NewReader(append(text, note+"\n"...)), limit: len(m.Raw())}
		got, err := l.ReadMessage()
		if err != nil || !bytes.Equal(got.Raw(), m.Raw()) {
			t.Errorf("size %d: %v, %d bytes", size, err, len(got.Raw()))
		}
		if got := lines(l); fmt.Sprint(got) != fmt.Sprint([]string{note}) {
			t.Errorf("size %d: then %q", size, got)
		}
	}
}

// Only the line over the limit is skipped, and the id of its message is found.
func TestALineOverTheLimitIsSkippedAndItsIDFound(t *testing.T) {
	const limit = 100
	for _, size := range []int{limit, 200, 100 << 10, 1 << 20} {
		for _, form := range []string{
			`{"jsonrpc":"2.0","id":42,"result":{"text":"%s"}}`,
			`{"result":{"id":1,"text":"\"id\":2,%s"},"jsonrpc":"2.0","id":42}`,
		} {
			in := fmt.Sprintf(form, strings.Repeat("x", size)) + "\n" + note + "\n"
			l := &LineReader{r: strings.NewReader(in), limit: limit}
			_, err := l.ReadMessage()
			var malformed *MalformedError
			if !errors.As(err, &malformed) || malformed.ID != "42" ||
				malformed.Err.Code != wire.CodeInvalidRequest ||
				len(malformed.Text) > maxMalformed {
				t.Errorf("size %d: got %#v", size, err)
			}
			if got := lines(l); fmt.Sprint(got) != fmt.Sprint([]string{note}) {
				t.Errorf("size %d: then %q", size, got)
			}
		}
	}
}

// Returned messages stay unchanged when further lines are read.
func TestAMessageMayBeKept(t *testing.T) {
	var in bytes.Buffer
	var want []string
	for i := range 5000 {
		text := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"%s"}`, i,
			strings.Repeat("m", i%300))
		want = append(want, text)
		in.WriteString(text + "\n")
	}
	l := &LineReader{r: &in, limit: 1 << 20}
	var kept []wire.Message
	for {
		m, err := l.ReadMessage()
		if err != nil {
			break
		}
		kept = append(kept, m)
	}
	for i, m := range kept {
		if string(m.Raw()) != want[i] {
			t.Fatalf("message %d became %s", i, m.Raw())
		}
	}
	if len(kept) != len(want) {
		t.Errorf("%d messages, want %d", len(kept), len(want))
	}
}

// FRAME-11: invalid UTF-8 from a backend is repaired; invalid UTF-8 from a client is rejected.
func TestFRAME_11_InvalidUTF8(t *testing.T) {
	in := "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"\xb0\xa1\"}\n"
	repaired := 0
	backend := &LineReader{r: strings.NewReader(in), limit: 1000, repairUTF8: true,
		onRepair: func() { repaired++ }}
	if got, want := lines(backend), `{"jsonrpc":"2.0","id":1,"result":"`+"\uFFFD"+`"}`; len(
		got) != 1 || got[0] != want || repaired != 1 {
		t.Errorf("from a backend: %q, repaired %d times", got, repaired)
	}
	client := &LineReader{r: strings.NewReader(in), limit: 1000}
	if got := lines(client); len(got) != 1 || !strings.HasPrefix(got[0], "malformed -32700") {
		t.Errorf("from a client: %q", got)
	}
}

// Invalid JSON may be the response to a call: a caller must not wait because of a NaN, which Python
// writes.
func TestABrokenResponseNamesItsID(t *testing.T) {
	for in, answer := range map[string]bool{
		`{"jsonrpc":"2.0","id":5,"result":{"x":NaN}}`: true,
		`{"result":"a` + "\t" +
			`b","jsonrpc":"2.0","id":5}`: true,
		`{"jsonrpc":"2.0","id":5,"error":{"code":1,}}`:            true,
		`{"jsonrpc":"2.0","id":5,"method":"ping","params":{NaN}}`: false,
		`{"level":30,"id":5,"msg":NaN}`:                           false,
		`{"jsonrpc":"2.0","id":5,"result":` + strings.Repeat("[", 2000) +
			strings.Repeat("]", 2000) + "}": true,
	} {
		_, err := (&LineReader{r: strings.NewReader(in + "\n"), limit: 1 << 20}).ReadMessage()
		var malformed *MalformedError
		if !errors.As(err, &malformed) || malformed.LooksLikeResponse != answer || answer &&
			malformed.ID != "5" {
			t.Errorf("%.60s: %+v", in, malformed)
		}
	}
}

// FuzzLines compares a LineReader with plain splitting of the same text, for different read sizes.
func FuzzLines(f *testing.F) {
	f.Add([]byte(note+"\r\n\n"+quest), uint16(100), true)
	f.Add([]byte("\xEF\xBB\xBF[1]\nx\n"), uint16(3), false)
	f.Add([]byte("\n\xEF\xBB\xBF"), uint16(36), false)
	f.Add([]byte(`{"id":1,"result":"`+strings.Repeat("x", 300)+"\"}\n"+note), uint16(64), true)
	f.Add([]byte("{\"jsonrpc\":\"2.0\",\"method\":\"\xff\"}\n\n"), uint16(64), false)
	f.Fuzz(func(t *testing.T, in []byte, limit uint16, slow bool) {
		var r io.Reader = bytes.NewReader(in)
		if slow {
			r = iotest.OneByteReader(r)
		}
		got := lines(&LineReader{r: r, limit: int(limit)})
		if want := plainLines(in, int(limit)); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
			t.Errorf("limit %d\nin   %q\ngot  %q\nwant %q", limit, in, got, want)
		}
	})
}

// FuzzLongLines makes the same comparison for lines that are longer than one or two chunks, or end
// at the end of a chunk. Each three bytes of script describe a line: its length in halves of a
// chunk, a difference in bytes, and its line end. limit is encoded like a length.
func FuzzLongLines(f *testing.F) {
	f.Add([]byte{2, 128, 0, 4, 127, 1, 0, 160, 0, 7, 129, 1, 3, 0, 2}, uint8(6), uint8(128),
		uint32(70_000))
	f.Add([]byte{4, 128, 1, 4, 129, 0, 4, 127, 0, 5, 0, 1, 9, 255, 0, 1, 255, 0}, uint8(4),
		uint8(128), uint32(1<<17))
	f.Add([]byte{0, 255, 0, 1, 0, 0, 1, 200, 0, 2, 1, 0, 8, 1, 0, 0, 140, 1, 6, 128, 2}, uint8(12),
		uint8(0), uint32(999))
	f.Fuzz(func(t *testing.T, script []byte, halves, more uint8, piece uint32) {
		length := func(halves, more byte) int {
			return max(0,
				int(halves%16)*chunkSize/2+int(more)-128)
		}
		var in []byte
		for line := range slices.Chunk(script[:min(len(script), 60)], 3) {
			if len(line) < 3 {
				break
			}
			n := length(line[0], line[1])
			text := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"`, len(in))
			text = append(text,
				bytes.Repeat([]byte{'a' + byte(len(in)%26)}, max(0, n-len(text)-2))...)
			in = append(append(in, text...),
				[]string{"\"}\n", "\"}\r\n", "\"}", "\n", "\"}\r\n\r\n\n"}[line[2]%5]...)
		}
		limit := length(halves, more)
		r := &chunkedReader{r: bytes.NewReader(in),
			size: func() int { return 1 + int(piece%(3*chunkSize)) }}
		got, want := lines(&LineReader{r: r, limit: limit}), plainLines(in, limit)
		if len(got) != len(want) {
			t.Fatalf("limit %d: %d lines, want %d", limit, len(got), len(want))
		}
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("limit %d, line %d:\ngot  %d bytes, %.60q\nwant %d bytes, %.60q", limit, i,
					len(got[i]), got[i], len(want[i]), want[i])
			}
		}
	})
}

// plainLines returns what the function lines returns for a LineReader of in.
func plainLines(in []byte, limit int) []string {
	var all []string
	split := bytes.Split(in, []byte("\n"))
	for i, line := range split {
		if len(line) == 0 && i == len(split)-1 {
			break
		}
		if len(line) > limit {
			var skim wire.Skimmer
			skim.Write(line)
			all = append(all,
				fmt.Sprintf("malformed %d id=%s %.20s", wire.CodeInvalidRequest, skim.ID(),
					line[:min(len(line), maxMalformed, limit+1)]))
			continue
		}
		line = bytes.TrimSuffix(bytes.TrimPrefix(line, []byte("\uFEFF")), []byte("\r"))
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		m, err := wire.Parse(line)
		if err != nil {
			id := m.ID()
			if err.(*wire.Error).Code == wire.CodeParseError {
				var skim wire.Skimmer
				skim.Write(line)
				id = skim.ID()
			}
			all = append(all,
				fmt.Sprintf("malformed %d id=%s %.20s", err.(*wire.Error).Code, id,
					line[:min(len(line), maxMalformed)]))
			continue
		}
		all = append(all, string(line))
	}
	return all
}

// Short lines do not keep an earlier long line in memory.
func TestLaterLinesDoNotRetainALongLine(t *testing.T) {
	long := `{"jsonrpc":"2.0","method":"` + strings.Repeat("x", 5<<20) + `"}`
	l := &LineReader{r: strings.NewReader(long + "\n" + note + "\n" + quest + "\n"), limit: 8 << 20}
	for _, want := range []string{long, note, quest} {
		if m, err := l.ReadMessage(); err != nil || string(m.Raw()) != want {
			t.Fatalf("%v, %.50s", err, m.Raw())
		}
		if cap(l.buf) > chunkSize {
			t.Errorf("after a line of %d bytes the buffer has %d", len(want), cap(l.buf))
		}
	}
}

// Returned lines stay unchanged for every division into reads, although the arrays of long lines
// are reused.
func TestLinesOfAllLengthsMayBeKept(t *testing.T) {
	for _, seed := range []uint64{1, 2} {
		random := rand.New(rand.NewPCG(seed, 0))
		var text []byte
		var want []string
		for range 100 {
			size := []int{5, 200, 5000, chunkSize / 2, chunkSize - 300, chunkSize, 3 * chunkSize,
				10 * chunkSize}[random.IntN(8)]
			line := fmt.Sprintf(`{"jsonrpc":"2.0","method":"%d","params":{"x":%q}}`, len(want),
				strings.Repeat(string(rune('a'+random.IntN(26))), size/2+random.IntN(size)))
			want = append(want, line)
			text = append(append(text, line...), '\n')
		}
		pieces := &chunkedReader{r: bytes.NewReader(text),
			size: func() int {
				return 1 +
					random.IntN([]int{100, 2000, 2 * chunkSize}[random.IntN(3)])
			}}
		got := lines(&LineReader{r: pieces, limit: 20 * chunkSize})
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d: %d lines, want %d, or other ones", seed, len(got), len(want))
		}
	}
}

// A chunkedReader returns at most size() bytes at a time.
type chunkedReader struct {
	r    io.Reader
	size func() int
}

func (p *chunkedReader) Read(b []byte) (int, error) { return p.r.Read(b[:min(len(b), p.size())]) }
