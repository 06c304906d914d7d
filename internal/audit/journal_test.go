package audit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/audit"
	"mcpgateway/internal/callid"
	"mcpgateway/internal/logging"
)

var call = audit.Record{
	Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Session: "s1", Client: "claude/2.0",
	ID: `"1"`, BackendID: "4211",
	Tool: "gh__search", Backend: "gh", BackendTool: "search", Outcome: audit.OK,
	Dur:     1234567 * time.Nanosecond,
	BytesIn: 10, BytesOut: 20, Arguments: []byte(`{"q": "go", "token": 1}`),
	Result: []byte(`{"content":[]}`),
}

// written runs a journal with these records and returns its output, without level. The JSON
// output to a log must be equal to the output to a file.
func written(t *testing.T, format string, o audit.Options, records ...audit.Record) string {
	var out bytes.Buffer
	h := &slog.HandlerOptions{
		Level: slog.LevelError,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.LevelKey {
				return slog.Attr{}
			}
			if format == "json" && a.Value.Kind() == slog.KindTime { // as package logging does
				return slog.String(
					a.Key, a.Value.Time().UTC().Format("2006-01-02T15:04:05.000000Z"),
				)
			}
			return a
		},
	}
	if format == "text" {
		run(t, audit.New(slog.New(slog.NewTextHandler(&out, h)), o), records...)
		return out.String()
	}
	run(t, audit.New(slog.New(slog.NewJSONHandler(&out, h)), o), records...)
	var lines bytes.Buffer
	run(t, audit.NewLines(&lines, o), records...)
	got := strings.ReplaceAll(lines.String(), `"level":"INFO",`, "")
	if got != out.String() {
		t.Errorf("as lines %sinto a log %s", got, &out)
	}
	return got
}

// run writes records with j.
func run(t *testing.T, j *audit.Journal, records ...audit.Record) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // Run writes the records that were written before
	for _, r := range records {
		j.Write(r)
	}
	if err := j.Run(ctx); err != nil || j.Lost() != 0 {
		t.Errorf("Run: %v, %d lost", err, j.Lost())
	}
}

func TestKeys(t *testing.T) {
	failed, refused, known := call, call, call
	known.Principal = "2"
	failed.Outcome, failed.Code, failed.ID = audit.RPCError, -32602, "1"
	refused.Outcome, refused.Code = audit.Rejected, -1
	refused.Backend, refused.BackendTool, refused.BackendID = "", "", ""
	for _, c := range []struct {
		name, format string
		o            audit.Options
		r            audit.Record
		want         string
	}{
		{"json", "json", audit.Options{}, call,
			`{"time":"2026-01-02T03:04:05.000000Z","msg":"call","session":"s1","client":"claude/2.0","id":"\"1\"","backend_id":"4211","tool":"gh__search","backend":"gh","backend_tool":"search","outcome":"ok","queued_ms":0,"dur_ms":1.234,"bytes_in":10,"bytes_out":20}`},
		{"text", "text", audit.Options{Payloads: audit.None}, call,
			`time=2026-01-02T03:04:05.000Z msg=call session=s1 client=claude/2.0 id="\"1\"" backend_id=4211 tool=gh__search backend=gh backend_tool=search outcome=ok queued_ms=0 dur_ms=1.234 bytes_in=10 bytes_out=20`},
		{"one of several tokens", "json", audit.Options{}, known,
			`{"time":"2026-01-02T03:04:05.000000Z","msg":"call","session":"s1","client":"claude/2.0","principal":"2","id":"\"1\"","backend_id":"4211","tool":"gh__search","backend":"gh","backend_tool":"search","outcome":"ok","queued_ms":0,"dur_ms":1.234,"bytes_in":10,"bytes_out":20}`},
		{"code only with rpc_error", "json", audit.Options{}, failed,
			`{"time":"2026-01-02T03:04:05.000000Z","msg":"call","session":"s1","client":"claude/2.0","id":"1","backend_id":"4211","tool":"gh__search","backend":"gh","backend_tool":"search","outcome":"rpc_error","code":-32602,"queued_ms":0,"dur_ms":1.234,"bytes_in":10,"bytes_out":20}`},
		{"never routed", "json", audit.Options{}, refused,
			`{"time":"2026-01-02T03:04:05.000000Z","msg":"call","session":"s1","client":"claude/2.0","id":"\"1\"","tool":"gh__search","outcome":"rejected","queued_ms":0,"dur_ms":1.234,"bytes_in":10,"bytes_out":20}`},
		{"arguments", "json", audit.Options{Payloads: audit.Arguments}, call,
			`{"time":"2026-01-02T03:04:05.000000Z","msg":"call","session":"s1","client":"claude/2.0","id":"\"1\"","backend_id":"4211","tool":"gh__search","backend":"gh","backend_tool":"search","outcome":"ok","queued_ms":0,"dur_ms":1.234,"bytes_in":10,"bytes_out":20,"arguments":{"q":"go","token":"***"}}`},
		{"all, text", "text", audit.Options{Payloads: audit.All}, call,
			`time=2026-01-02T03:04:05.000Z msg=call session=s1 client=claude/2.0 id="\"1\"" backend_id=4211 tool=gh__search backend=gh backend_tool=search outcome=ok queued_ms=0 dur_ms=1.234 bytes_in=10 bytes_out=20 arguments="{\"q\": \"go\", \"token\": \"***\"}" result="{\"content\":[]}"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := written(t, c.format, c.o, c.r); got != c.want+"\n" {
				t.Errorf("got  %swant %s", got, c.want)
			}
		})
	}
}

// The call id is the first attribute of a record, in a file and in both formats of the log.
func TestCallID(t *testing.T) {
	r := call
	r.Seq = 1234
	id := callid.Text(1234)
	for format, want := range map[string]string{
		"json": `"msg":"call","call":"` + id + `","session":"s1",`,
		"text": " msg=call call=" + id + " session=s1 ",
	} {
		if got := written(t, format, audit.Options{}, r); !strings.Contains(got, want) {
			t.Errorf("%s: got %swant %s", format, got, want)
		}
	}
}

// A record has the counts that are not 0.
func TestCounts(t *testing.T) {
	for want, counts := range map[string]audit.Counts{
		`"outcome":"ok","queued_ms"`: {},
		`"outcome":"ok","rounds":2,"progress":17,"reconnects":3,"queued_ms":0,`: {2, 17, 3},
		`"outcome":"ok","progress":1,"queued_ms":0,`:                            {Progress: 1},
	} {
		r := call
		r.Counts = counts
		if got := written(t, "json", audit.Options{}, r); !strings.Contains(got, want) {
			t.Errorf("got  %swant %s", got, want)
		}
	}
}

func TestPayloadsOfAllKinds(t *testing.T) {
	long := `{"password":"` + strings.Repeat("p", 1000) +
		`","text":"` + strings.Repeat("s3cret ", 20_000) + `"}`
	mask := func(s string) string { return strings.ReplaceAll(s, "s3cret", "***") }
	for _, c := range []struct{ name, in, want string }{
		{"JSON", "{\"a\":\n\"s3cret\"}", `{"a":"***"}`},
		{"no JSON", `{"a":s3cret`, `"{\"a\":***"`},
		{"no UTF-8", "\"\xff\"", "\"\ufffd\""},
		{"null", "null", "null"},
		{"empty", "", `""`},
	} {
		r := call
		r.Arguments = []byte(c.in)
		got := written(t, "json", audit.Options{Payloads: audit.Arguments, Mask: mask}, r)
		if !strings.HasSuffix(got, `,"arguments":`+c.want+"}\n") {
			t.Errorf("%s: %s", c.name, got)
		}
	}
	for cut := range 8 { // wherever the cut falls in a secret
		r := call
		r.Result = []byte(strings.Repeat(" ", cut) + long)
		var got struct{ Result string }
		if err := json.Unmarshal([]byte(written(t, "json",
			audit.Options{Payloads: audit.All, Mask: mask}, r)), &got); err != nil {
			t.Fatal(err)
		}
		text, ok := strings.CutSuffix(
			got.Result, fmt.Sprintf("… [cut: %d bytes in all]", len(r.Result)),
		)
		if !ok || len(text) > 64<<10 || len(text) < 30_000 || strings.ContainsAny(text, "3c") ||
			strings.Contains(text, "pp") {
			t.Errorf("%d bytes, ending %q", len(text), got.Result[max(0, len(got.Result)-50):])
		}
	}
}

// SEC-03, in a file and with the gateway's handler at log.level error: records are written,
// payloads are valid JSON, and the output contains no secret.
func TestSEC_03_ThroughTheGatewaysLogger(t *testing.T) {
	mask := logging.NewMask("s3cret-\"value\"")
	o := audit.Options{Payloads: audit.All, Mask: mask.String}
	var log, file bytes.Buffer
	r := call
	r.Tool, r.Backend = `s3cret-"value"`, "" // the name of an unknown tool may be any text
	r.Arguments = []byte(
		`{"a":"s3cret-\"v\u0061lue\"", "Authorization": ["x1x"], "url":"https:\/\/me:x1x@host/?k=x1x#f"}`)
	r.Result = []byte(
		`{"content":[{"type":"text","text":"{\"api_key\":\"x1x\",\"n\":1} "}, {"text":"Authorization: Bearer x1x\nAccept: *"}]}`)
	run(t, audit.New(logging.New(&log, logging.Options{Format: "json", Level: slog.LevelError,
		Mask: mask}), o), r)
	run(t, audit.NewLines(&file, o), r)
	want := `"arguments":{"a":"***","Authorization":"***","url":"https:\/\/***@host/?***"},` +
		`"result":{"content":[{"type":"text","text":"{\"api_key\":\"***\",\"n\":1} "},{"text":"Authorization: Bearer ***\nAccept: *"}]}}`
	for _, got := range []string{log.String(), file.String()} {
		if strings.Contains(got, "s3cret") || strings.Contains(got, "x1x") {
			t.Errorf("leaked: %s", got)
		}
		if !strings.HasSuffix(got, want+"\n") {
			t.Errorf("got  %s\nwant …%s", got, want)
		}
	}
}

// OBS-05: each of 1,000 concurrent calls results in one whole line.
func TestOBS_05_ManyAtOnce(t *testing.T) {
	var out bytes.Buffer
	j := audit.New(
		slog.New(slog.NewJSONHandler(&out, nil)), audit.Options{Queue: 16, Payloads: audit.All},
	)
	ctx, cancel := context.WithCancel(t.Context())
	var run, calls sync.WaitGroup
	run.Go(func() { j.Run(ctx) })
	const n = 1000
	for i := range n {
		calls.Go(func() {
			r := call
			r.ID, r.BackendID = fmt.Sprint(i), fmt.Sprint(n+i)
			j.Write(r)
		})
	}
	calls.Wait()
	cancel()
	run.Wait()

	seen := map[string]bool{}
	for line := range strings.Lines(out.String()) {
		var got struct {
			Msg, ID, Outcome string
			BackendID        string `json:"backend_id"`
			Arguments        map[string]any
		}
		if err := json.Unmarshal([]byte(line), &got); err != nil || got.Msg != "call" ||
			got.Arguments["q"] != "go" {
			t.Fatalf("%v: %s", err, line)
		}
		seen[got.ID+" "+got.BackendID] = true
	}
	for i := range n {
		if !seen[fmt.Sprint(i, n+i)] {
			t.Errorf("call %d is missing", i)
		}
	}
	if lines := strings.Count(out.String(), "\n"); lines != n || j.Lost() != 0 {
		t.Errorf("%d lines, %d lost", lines, j.Lost())
	}
}

// gated is a writer that waits for a signal before each line.
type gated struct {
	next  chan struct{}
	lines int
}

func (g *gated) Write(p []byte) (int, error) {
	<-g.next
	g.lines++
	return len(p), nil
}

func TestWriteWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &gated{next: make(chan struct{})}
		j := audit.New(slog.New(slog.NewJSONHandler(out, nil)), audit.Options{Queue: 2})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { j.Run(ctx) })
		for range 3 { // one in the writer, two in the queue
			j.Write(call)
			synctest.Wait()
		}
		through := make(chan struct{})
		wg.Go(func() { j.Write(call); close(through) })
		synctest.Wait()
		select {
		case <-through:
			t.Error("a fourth record went through")
		default:
		}
		cancel() // the queued records were accepted before, so they are also written
		close(out.next)
		wg.Wait()
		if out.lines != 4 || j.Lost() != 0 {
			t.Errorf("%d lines, %d lost", out.lines, j.Lost())
		}
	})
}

func TestAfterRunWritesAreLostAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		j := audit.New(slog.New(slog.NewJSONHandler(&out, nil)), audit.Options{Queue: 1})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		j.Run(ctx)
		for range 5 {
			j.Write(call)
		}
		if out.Len() != 0 || j.Lost() != 5 {
			t.Errorf("%d lost, wrote %s", j.Lost(), &out)
		}
	})
}

// If Run ends during many Writes, each record is either written or counted as lost.
func TestRunEndsDuringWrites(t *testing.T) {
	for range 50 {
		var out bytes.Buffer
		j := audit.New(slog.New(slog.NewJSONHandler(&out, nil)), audit.Options{Queue: 4})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		const n = 100
		for range n {
			wg.Go(func() { j.Write(call) })
		}
		wg.Go(cancel)
		j.Run(ctx)
		wg.Wait()
		if lines := bytes.Count(out.Bytes(), []byte("\n")); int64(lines)+j.Lost() != n {
			t.Fatalf("%d lines and %d lost of %d", lines, j.Lost(), n)
		}
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestRefusedRecordsCountAsLost(t *testing.T) {
	j := audit.New(slog.New(slog.NewJSONHandler(full{}, nil)), audit.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	j.Write(call)
	if j.Run(ctx); j.Lost() != 1 {
		t.Errorf("%d lost", j.Lost())
	}
}

func TestDefaultTime(t *testing.T) {
	r := call
	r.Time = time.Time{}
	synctest.Test(t, func(t *testing.T) {
		// the initial time of synctest
		if got := written(t, "json", audit.Options{}, r); !strings.HasPrefix(got,
			`{"time":"2000-01-01T`) {
			t.Errorf("got %s", got)
		}
	})
}

func ExampleJournal() {
	j := audit.New(slog.New(slog.NewTextHandler(os.Stdout,
		&slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})), audit.Options{})
	ctx, stop := context.WithCancel(context.Background())
	stop()
	j.Write(audit.Record{Session: "s1", Client: "demo/1", ID: "7", Tool: "nosuch",
		Outcome: audit.Rejected})
	j.Run(ctx)
	// Output: level=INFO msg=call session=s1 client=demo/1 id=7 tool=nosuch outcome=rejected queued_ms=0 dur_ms=0 bytes_in=0 bytes_out=0
}

func TestAllocations_OfWrite(t *testing.T) {
	j := audit.New(slog.New(slog.DiscardHandler), audit.Options{Payloads: audit.All})
	if n := testing.AllocsPerRun(500, func() { j.Write(call) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Requests other than tools/call have records with msg=request. The records do not contain secret
// parts of URIs.
func TestRequestRecords(t *testing.T) {
	r := call
	r.Method, r.Tool, r.BackendTool = "prompts/get", "gh__plan", "plan"
	want := `{"time":"2026-01-02T03:04:05.000000Z","msg":"request","session":"s1","client":"claude/2.0","id":"\"1\"","backend_id":"4211","method":"prompts/get","name":"gh__plan","backend":"gh","backend_name":"plan","outcome":"ok","queued_ms":0,"dur_ms":1.234,"bytes_in":10,"bytes_out":20}`
	if got := strings.TrimSpace(written(t, "json", audit.Options{}, r)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for uri, want := range map[string]string{
		"file:///a/b":                          "file:///a/b",
		"https://host/a?key=hunter2":           "https://host/a?***",
		"https://u:hunter2@host/a@b":           "https://***@host/a@b",
		"https://u:hun@ter2@host:1?q=hunter2#": "https://***@host:1?***",
		"db:table?token=hunter2":               "db:table?***",
		"odd://t/{+path}{?q}":                  "odd://t/{+path}{?q}",
		"odd://{user}@t/?q={q}{&n}":            "odd://{user}@t/?q={q}{&n}",
		"odd://t/{+path}?key=hunter2{&q}":      "odd://t/{+path}?***",
		"https://host/a@b?":                    "https://host/a@b",
		"a://hunter2@":                         "a://***@",
		"known secret":                         "known ***",
	} {
		r.Method, r.Tool, r.BackendTool = "resources/read", uri, uri
		mask := func(s string) string { return strings.ReplaceAll(s, "secret", "***") }
		got := written(t, "json", audit.Options{Mask: mask}, r)
		if !strings.Contains(got, `"name":"`+want+`","backend":"gh","outcome"`) ||
			strings.Contains(got, "hunter2") {
			t.Errorf("%s was written as %s", uri, got)
		}
	}
}

// The name of a tool may contain a secret that the server has received.
func TestNamesAreMasked(t *testing.T) {
	r := call
	r.Tool, r.BackendTool = "gh__get_s3cret-1", "get_s3cret-1"
	got := written(t, "json", audit.Options{Mask: logging.NewMask("s3cret-1").String}, r)
	if !strings.Contains(got, `"tool":"gh__get_***","backend":`) ||
		!strings.Contains(got, `"backend_tool":"get_***"`) {
		t.Error(got)
	}
}

// A record contains the reason for a missing result. The text of a backend's response is used only
// if results are recorded.
func TestReason_F_CLI_10(t *testing.T) {
	for name, tc := range map[string]struct {
		outcome  audit.Outcome
		reason   string
		result   string
		payloads audit.Payloads
		want     string
	}{
		"ours": {audit.NotRun, "backend gh: it is not running", "", audit.None,
			`"reason":"backend gh: it is not running"`},
		"masked": {audit.Rejected, "Unknown tool: s3cret", "", audit.None,
			`"reason":"Unknown tool: ***"`},
		"control characters": {audit.BackendLost, "a\x1b[2Jb\nc\u202ed", "", audit.None,
			`"reason":"a [2Jb c d"`},
		"cut": {audit.RPCError, "the result is not an object: \"rrs3cr…", "",
			audit.None, `"reason":"the result is not an object: \"rr***…"`},
		"long": {audit.BackendLost, strings.Repeat("é", 5000), "", audit.None,
			`"reason":"` + strings.Repeat("é", 150) + `…"`},
		"tool error": {audit.ToolError, "",
			`{"content":[{"type":"text","text":"no s3cret"}],"isError":true}`, audit.All,
			`"reason":"no ***"`},
		"tool error, none": {audit.ToolError, "",
			`{"content":[{"type":"text","text":"no s3cret"}],"isError":true}`, audit.None, ""},
		"error": {audit.RPCError, "", `{"code":-1,"message":"bad"}`, audit.All,
			`"reason":"bad"`},
		"error, none": {audit.RPCError, "", `{"code":-1,"message":"bad"}`, audit.Arguments, ""},
		"ok":          {audit.OK, "", `{"content":[{"text":"fine"}]}`, audit.All, ""},
	} {
		r := call
		r.Outcome, r.Reason, r.Result = tc.outcome, tc.reason, []byte(tc.result)
		if tc.result == "" {
			r.Result = nil
		}
		got := written(
			t, "json",
			audit.Options{Payloads: tc.payloads, Mask: logging.NewMask("s3cret").String}, r,
		)
		if tc.want == "" && strings.Contains(got, `"reason"`) || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// All times have the same form, in UTC.
func TestTimesHaveOneForm_F_CLI_10(t *testing.T) {
	r := call
	zone := time.FixedZone("", 3600)
	r.Time, r.Started = time.Date(2026, 1, 2, 4, 0, 0, 120_000_000, zone),
		time.Date(2026, 1, 2, 3, 0, 0, 0, zone)
	r.Queued = 2 * time.Second
	got := written(t, "json", audit.Options{}, r)
	for _, want := range []string{`"time":"2026-01-02T03:00:00.120000Z"`,
		`"started":"2026-01-02T02:00:00.000000Z","queued_ms":2000,"dur_ms":1.234`} {
		if !strings.Contains(got, want) {
			t.Errorf("%s has no %s", got, want)
		}
	}
}
