package auditlog

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"time"

	"mcpgateway/internal/protocol"
)

// A Attribute is an attribute of a RecordLine.
type Attribute uint8

// The fields, named like the attributes in docs/operations.md. Tool is the exposed name of a tool,
// prompt or resource; BackendTool is its own name at the backend.
const (
	Time Attribute = iota
	Level
	Msg
	Call
	Session
	Client
	Principal
	ID
	BackendID
	TraceID
	Method
	Tool
	Backend
	BackendTool
	Outcome
	Code
	Reason
	Confirmation
	Rounds
	Progress
	Reconnects
	Started
	QueuedMS
	DurMS
	BytesIn
	BytesOut
	Arguments
	Result
	numFields
)

// A knownKey is the key of a field, as it is in a line of JSON.
type knownKey struct {
	text  string
	field Attribute
}

// knownKeys are the keys of the fields, in the order in which a gateway writes them.
var knownKeys = [...]knownKey{
	{`"time":`, Time}, {`"level":`, Level}, {`"msg":`, Msg}, {`"call":`, Call},
	{`"session":`, Session}, {`"client":`, Client}, {`"principal":`, Principal},
	{`"id":`, ID}, {`"backend_id":`, BackendID}, {`"trace_id":`, TraceID},
	{`"method":`, Method}, {`"tool":`, Tool}, {`"name":`, Tool}, {`"backend":`, Backend},
	{`"backend_tool":`, BackendTool}, {`"backend_name":`, BackendTool},
	{`"outcome":`, Outcome}, {`"code":`, Code}, {`"reason":`, Reason},
	{`"confirmation":`, Confirmation}, {`"rounds":`, Rounds}, {`"progress":`, Progress},
	{`"reconnects":`, Reconnects}, {`"started":`, Started}, {`"queued_ms":`, QueuedMS},
	{`"dur_ms":`, DurMS}, {`"bytes_in":`, BytesIn}, {`"bytes_out":`, BytesOut},
	{`"arguments":`, Arguments}, {`"result":`, Result},
}

// fieldOf returns the field of an attribute.
func fieldOf(key []byte) (f Attribute, known bool) {
	for _, k := range knownKeys {
		if string(key) == k.text[1:len(k.text)-2] {
			return k.field, true
		}
	}
	return 0, false
}

// A valueRange is a range of a line; {0, 0} = no range.
type valueRange struct{ from, to int32 }

// A RecordLine is one line of a file. It is valid until the function that got it returns.
type RecordLine struct {
	Line   []byte // without the line feed
	isText bool   // format text of the log; else JSON
	values [numFields]valueRange
}

// Has reports whether the record has a field.
func (r *RecordLine) Has(f Attribute) bool { return r.values[f].to > 0 }

// raw returns the value of a field as it is in the line; nil = the record has no such field.
func (r *RecordLine) raw(f Attribute) []byte {
	v := r.values[f]
	if v.to == 0 {
		return nil
	}
	return r.Line[v.from:v.to]
}

// bytes returns the value of a field, without quotes and escapes. It allocates only if the value
// has escapes.
func (r *RecordLine) bytes(f Attribute) []byte {
	v := r.raw(f)
	if len(v) < 2 || v[0] != '"' {
		return v
	}
	content := v[1 : len(v)-1]
	if bytes.IndexByte(content, '\\') < 0 {
		return content
	}
	if r.isText {
		if s, err := strconv.Unquote(string(v)); err == nil {
			return []byte(s)
		}
		return content
	}
	var s string
	if json.Unmarshal(v, &s) == nil {
		return []byte(s)
	}
	return content
}

// Text returns the value of a field, "" if there is none. The value of a payload is its JSON text.
func (r *RecordLine) Text(f Attribute) string { return string(r.bytes(f)) }

// Number returns the value of a field with a whole number, 0 if there is none.
func (r *RecordLine) Number(f Attribute) int64 {
	v := r.bytes(f)
	negative := len(v) > 0 && v[0] == '-'
	if negative {
		v = v[1:]
	}
	n, ok := digits(v)
	switch {
	case !ok || len(v) > 18:
		return 0
	case negative:
		return -n
	}
	return n
}

// duration returns the value of a field in milliseconds.
func (r *RecordLine) duration(f Attribute) time.Duration {
	v := r.bytes(f)
	whole, fraction, _ := bytes.Cut(v, []byte("."))
	ms, ok := digits(whole)
	part, okPart := digits(fraction)
	if ok && okPart && len(whole) > 0 && len(whole) < 12 && len(fraction) <= 3 {
		for range 3 - len(fraction) {
			part *= 10
		}
		return time.Duration(ms*1000+part) * time.Microsecond
	}
	n, err := strconv.ParseFloat(string(v), 64)
	if err != nil || math.IsNaN(n) || math.Abs(n) > 1e12 {
		return 0
	}
	return time.Duration(n * 1e6)
}

// Queued returns the time that the call waited before it was sent, or until its end.
func (r *RecordLine) Queued() time.Duration { return r.duration(QueuedMS) }

// Duration returns the time from the arrival of the call to its end.
func (r *RecordLine) Duration() time.Duration { return r.duration(QueuedMS) + r.duration(DurMS) }

// TimeOf returns the value of a field with a time; zero = none, or not a time.
func (r *RecordLine) TimeOf(f Attribute) time.Time {
	us, ok := micros(r.bytes(f))
	if !ok {
		return time.Time{}
	}
	return time.UnixMicro(us)
}

// MethodName returns the MCP method of the request.
func (r *RecordLine) MethodName() string {
	if r.Has(Method) {
		return r.Text(Method)
	}
	return protocol.MethodToolsCall
}

// isCall reports whether the record is an audit record. Other lines of a log are not.
func (r *RecordLine) isCall() bool {
	if !r.Has(Outcome) {
		return false
	}
	switch string(r.bytes(Msg)) {
	case "call", "request":
		return true
	}
	return false
}

// micros converts a time in the form of RFC 3339 to microseconds since 1970.
func micros(text []byte) (us int64, ok bool) {
	const form = "2006-01-02T15:04:05.000000Z"
	if len(text) == len(form) && text[26] == 'Z' && text[19] == '.' && text[10] == 'T' &&
		text[4] == '-' && text[7] == '-' && text[13] == ':' && text[16] == ':' {
		year, a := digits(text[0:4])
		month, b := digits(text[5:7])
		day, c := digits(text[8:10])
		hour, d := digits(text[11:13])
		minute, e := digits(text[14:16])
		second, f := digits(text[17:19])
		fraction, g := digits(text[20:26])
		if a && b && c && d && e && f && g && month >= 1 && month <= 12 && day >= 1 && day <= 28 &&
			hour < 24 && minute < 60 && second < 60 {
			seconds := ((days(year, month, day)*24+hour)*60+minute)*60 + second
			return seconds*1e6 + fraction, true
		}
	}
	t, err := time.Parse(time.RFC3339Nano, string(text))
	return t.UnixMicro(), err == nil
}

// digits returns the number of a text of digits; 0 for "".
func digits(text []byte) (n int64, ok bool) {
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}

// days returns the days from 1970-01-01 to a date of the Gregorian calendar. It counts years from
// March, so that the leap day is the last day of a year.
func days(year, month, day int64) int64 {
	if month <= 2 {
		year--
	}
	month = (month + 9) % 12 // March = 0
	return year*365 + year/4 - year/100 + year/400 + (month*153+2)/5 + day - 1 - 719468
}
