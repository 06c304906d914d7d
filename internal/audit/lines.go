package audit

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"mcpgateway/internal/callid"
)

// maxBlock bounds the bytes of records that are written together.
const maxBlock = 64 << 10

// A lineSink buffers records as lines of JSON and writes many whole lines with one Write. Most
// records of a batch have the client and the target of the record before, so that the encoded
// attributes are kept until flush. They are not kept longer, because the mask may change.
type lineSink struct {
	w        io.Writer
	mask     func(string) string
	attrs    []slog.Attr // buffer for the attributes of a record
	buf      []byte
	buffered int64 // records in buf

	client, target keptAttrs
	times          secondFormat
}

// keptAttrs are encoded attributes with the values from which they were made.
type keptAttrs struct {
	from [4]string
	text []byte // empty = no attributes are kept
}

func (l *lineSink) write(e *queuedRecord) (lost int64) {
	before := len(l.buf)
	from := [4]string{e.Session, e.Client, e.Principal}
	if c := &l.client; len(c.text) == 0 || c.from != from {
		c.from, c.text = from, l.encode(c.text[:0], e.appendClient(l.attrs[:0], l.mask))
	}
	from = [4]string{e.Method, e.Tool, e.Backend, e.BackendTool}
	if t := &l.target; len(t.text) == 0 || t.from != from {
		t.from, t.text = from, l.encode(t.text[:0], e.appendTarget(l.attrs[:0], l.mask))
	}
	l.buf = append(l.buf, `{"time":"`...)
	l.buf = l.times.append(l.buf, e.Time)
	l.buf = append(append(l.buf, `","level":"INFO","msg":"`...), e.message()...)
	if e.Seq != 0 {
		l.buf = callid.Append(append(l.buf, `","call":"`...), e.Seq)
	}
	l.buf = append(append(l.buf, '"'), l.client.text...)
	l.buf = l.encode(l.buf, e.appendIDs(l.attrs[:0], l.mask))
	l.buf = append(l.buf, l.target.text...)
	l.buf = l.encode(l.buf, e.appendOutcome(l.attrs[:0], l.mask))
	l.buf = append(l.buf, '}', '\n')
	if before > 0 && len(l.buf) > maxBlock {
		lost = l.writeBlock(before)
	}
	l.buffered++
	return lost
}

func (l *lineSink) flush() (lost int64) {
	l.client.text, l.target.text = l.client.text[:0], l.target.text[:0]
	if len(l.buf) == 0 {
		return 0
	}
	return l.writeBlock(len(l.buf))
}

// writeBlock writes the first n bytes of buf. If the write fails, the records that were not written
// completely are lost.
func (l *lineSink) writeBlock(n int) (lost int64) {
	if done, err := l.w.Write(l.buf[:n]); err != nil {
		lost = l.buffered - int64(bytes.Count(l.buf[:done], []byte("\n")))
	}
	l.buf, l.buffered = append(l.buf[:0], l.buf[n:]...), 0
	return lost
}

// encode appends attributes as slog's JSON handler would encode them, byte for byte. It supports
// only the kinds of values that queuedRecord.attrs uses. It keeps attrs as the next buffer.
func (l *lineSink) encode(b []byte, attrs []slog.Attr) []byte {
	for i := range attrs {
		a := &attrs[i]
		b = append(append(append(b, `,"`...), a.Key...), `":`...)
		switch a.Value.Kind() {
		case slog.KindString:
			b = appendString(b, a.Value.String())
		case slog.KindTime:
			b = append(l.times.append(append(b, '"'), a.Value.Time()), '"')
		case slog.KindInt64:
			b = strconv.AppendInt(b, a.Value.Int64(), 10)
		case slog.KindFloat64:
			b = appendMillis(b, a.Value.Float64())
		case slog.KindAny:
			b = appendRaw(b, a.Value.Any().(json.RawMessage), l.mask)
		}
	}
	l.attrs = attrs
	return b
}

// A secondFormat formats times in UTC with a fixed number of digits, as in the JSON log:
// 2006-01-02T15:04:05.000000Z. It keeps the text of the last second.
type secondFormat struct {
	second int64  // seconds since 1970
	text   []byte // the second as text; nil = none
}

func (f *secondFormat) append(b []byte, t time.Time) []byte {
	if second := t.Unix(); f.text == nil || second != f.second {
		f.second = second
		f.text = t.UTC().AppendFormat(f.text[:0], "2006-01-02T15:04:05.")
	}
	b = append(b, f.text...)
	from := len(b)
	b = append(b, "000000Z"...)
	for at, us := from+5, t.Nanosecond()/int(time.Microsecond); at >= from; at, us = at-1, us/10 {
		b[at] = byte('0' + us%10)
	}
	return b
}

// appendMillis appends a whole number of microseconds, in milliseconds: JSON writes no exponent.
// Up to a billion seconds, the decimal digits of the number are the shortest exact text.
func appendMillis(b []byte, ms float64) []byte {
	if ms < 0 || ms > 1e12 {
		return strconv.AppendFloat(b, ms, 'f', -1, 64)
	}
	us := int64(math.Round(ms * 1e3))
	b = strconv.AppendInt(b, us/1e3, 10)
	if us %= 1e3; us == 0 {
		return b
	}
	b = append(b, '.', byte('0'+us/100), byte('0'+us/10%10), byte('0'+us%10))
	return bytes.TrimRight(b, "0")
}

// appendRaw appends a payload on one line. If the compact form of the payload contains a secret,
// the payload is appended as a masked string.
func appendRaw(b []byte, raw json.RawMessage, mask func(string) string) []byte {
	var line bytes.Buffer
	_ = json.Compact(&line, raw) // never fails: payload converts invalid JSON to a string
	text := line.String()
	if masked := mask(text); masked != text {
		return appendString(b, masked)
	}
	return append(b, text...)
}

// appendString appends s in quotes, with the escapes of slog.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	copied := 0
	for i := 0; i < len(s); {
		c, size := rune(s[i]), 1
		if c >= utf8.RuneSelf {
			c, size = utf8.DecodeRuneInString(s[i:])
		}
		if c >= ' ' && c != '"' && c != '\\' && c != '\u2028' && c != '\u2029' &&
			(c != utf8.RuneError || size > 1) {
			i += size
			continue
		}
		b = append(append(b, s[copied:i]...), '\\')
		i += size
		copied = i
		switch c {
		case '"', '\\':
			b = append(b, byte(c))
		case '\n':
			b = append(b, 'n')
		case '\r':
			b = append(b, 'r')
		case '\t':
			b = append(b, 't')
		default:
			b = append(b, 'u', hex[c>>12&15], hex[c>>8&15], hex[c>>4&15], hex[c&15])
		}
	}
	return append(append(b, s[copied:]...), '"')
}
