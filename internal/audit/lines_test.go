package audit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/audit"
	"mcpgateway/internal/logging"
)

// A file contains, byte for byte, the output of slog.
func FuzzRecord(f *testing.F) {
	for _, text := range []string{
		"", "plain", "1", `"1"`, `\`, "\x00\b\f\n\r\t\x1b\x1f\x7f", "<a href='x'>&</a>",
		"\u2028\u2029\ufffd€\U0001f600", "\xff\xc3(\xed\xa0\x80",
		"s3cret", "https://u:p@host/?q#f", "Authorization: Bearer abc", "e\u0301\ufeff",
	} {
		f.Add(text, text, "", int64(1_234_567), int64(0), 0, []byte(text))
		f.Add(
			"x", text, text, int64(-1), int64(1e18), math.MinInt64,
			[]byte(`{"a": [1, 2 ], "b":"`+text+`"}`),
		)
	}
	f.Add(
		"", "", "m", int64(math.MaxInt64), int64(math.MinInt64), math.MaxInt64,
		[]byte(` [1e400, 12345678901234567890, -0.0, "\u2028 <"] `),
	)
	f.Add("", "", "m", int64(999), int64(1), -32602, []byte(`{"two tokens" : [31, 41]}`))
	mask := logging.NewMask("s3cret-\"<ö>", "s3cret", "[31,41]")
	f.Fuzz(func(t *testing.T, name, text, method string, dur, at int64, n int, payload []byte) {
		routed := audit.Record{
			Seq:  uint64(at),
			Time: time.Unix(0, at).UTC(), Started: time.Unix(0, at).Add(-time.Hour),
			Queued: time.Duration(dur) / 3, Reason: text, Session: name, Client: text, ID: text,
			BackendID: name, Method: method,
			Tool: text, Backend: name, BackendTool: name, Outcome: audit.RPCError, Code: n,
			Dur: time.Duration(dur), BytesIn: n, BytesOut: -n, Arguments: payload, Result: payload,
		}
		refused := audit.Record{
			Time: time.Unix(at%1e9, 0), ID: name, Tool: text, Outcome: audit.Outcome(text),
			Dur: time.Duration(dur) % 1e6, BytesIn: n,
		}
		o := audit.Options{Payloads: audit.All, Mask: mask.String}
		var log, file bytes.Buffer
		run(
			t, audit.New(logging.New(&log, logging.Options{Format: "json", Mask: mask}), o),
			routed, refused,
		)
		run(t, audit.NewLines(&file, o), routed, refused)
		if !bytes.Equal(log.Bytes(), file.Bytes()) {
			t.Errorf("slog %sours %s", &log, &file)
		}
	})
}

// pieces records the data of each Write, and fails selected ones.
type pieces struct {
	all  []string
	fail func(n int) bool
}

func (p *pieces) Write(b []byte) (int, error) {
	p.all = append(p.all, string(b))
	if p.fail != nil && p.fail(len(p.all)) {
		return 0, errors.New("disk full")
	}
	return len(b), nil
}

// manyRecords are 2,000 records of different lengths.
func manyRecords() (records []audit.Record) {
	for i := range 2000 {
		r := call
		r.Client = fmt.Sprint(i, " ", strings.Repeat("x", i%200))
		records = append(records, r)
	}
	return records
}

// Records are written together, whole and in order, and not before a block is full or flushed.
func TestLineSinkWritesWholeRecords(t *testing.T) {
	out := &pieces{}
	large := call
	large.Arguments = []byte(`"` + strings.Repeat("\\u0001", 10_000) + `"`)
	records := append(manyRecords(), large, large, call)
	run(t, audit.NewLines(out, audit.Options{Payloads: audit.Arguments}), records...)
	var one bytes.Buffer
	for _, r := range records {
		run(t, audit.NewLines(&one, audit.Options{Payloads: audit.Arguments}), r)
	}
	if strings.Join(out.all, "") != one.String() {
		t.Error("the text is not what was written")
	}
	for _, piece := range out.all {
		if !strings.HasSuffix(piece, "\n") || len(piece) > 64<<10 {
			t.Errorf("a piece of %d bytes ends in %q", len(piece), piece[len(piece)-1:])
		}
	}
	if len(out.all) != 15 {
		t.Errorf("%d writes of %d bytes", len(out.all), one.Len())
	}
}

// If a block cannot be written, exactly the records in the block count as lost.
func TestFailedWriteLosesItsRecords(t *testing.T) {
	for failing := 1; ; failing++ {
		out := &pieces{fail: func(n int) bool { return n == failing }}
		j := audit.NewLines(out, audit.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, r := range manyRecords() {
			j.Write(r)
		}
		j.Run(ctx)
		if failing > len(out.all) {
			if failing < 5 || j.Lost() != 0 {
				t.Errorf("%d writes, %d lost", len(out.all), j.Lost())
			}
			return
		}
		if want := strings.Count(out.all[failing-1], "\n"); j.Lost() != int64(want) {
			t.Errorf("write %d: %d lost, want %d", failing, j.Lost(), want)
		}
	}
}

// A full disk stores a part of a block. The complete records in this part are not lost.
func TestPartialWriteLosesTheRest(t *testing.T) {
	var one bytes.Buffer
	run(t, audit.NewLines(&one, audit.Options{}), call)
	for size, lost := range map[int]int64{0: 3, 1: 3, one.Len() - 1: 3, one.Len(): 2,
		one.Len() + 1: 2, 3*one.Len() - 1: 1} {
		j := audit.NewLines(room(size), audit.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 3 {
			j.Write(call)
		}
		j.Run(ctx)
		if j.Lost() != lost {
			t.Errorf(
				"of three records %d bytes are written: %d lost, want %d", size, j.Lost(), lost,
			)
		}
	}
}

// room is a writer with limited space.
type room int

func (r room) Write([]byte) (int, error) { return int(r), errors.New("disk full") }

// The encoded attributes that a sink keeps are not used after a change of the mask, or for another
// client or target.
func TestKeptAttributesAreCurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mask := logging.NewMask("first-secret")
		var file bytes.Buffer
		j := audit.NewLines(&file, audit.Options{Mask: mask.String})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = j.Run(ctx) }()
		write := func(change func(r *audit.Record)) {
			r := call
			r.Client, r.Tool = "later-secret", "later-secret"
			change(&r)
			j.Write(r)
		}
		write(func(*audit.Record) {})
		for _, change := range []func(r *audit.Record){
			func(r *audit.Record) { r.Session = "other" },
			func(r *audit.Record) { r.Client = "other" },
			func(r *audit.Record) { r.Principal = "other" },
			func(r *audit.Record) { r.Method = "other" },
			func(r *audit.Record) { r.Tool = "other" },
			func(r *audit.Record) { r.Backend = "other" },
			func(r *audit.Record) { r.BackendTool = "other" },
		} {
			before := strings.Count(file.String(), "other")
			write(change)
			write(func(*audit.Record) {})
			time.Sleep(time.Second)
			synctest.Wait()
			if n := strings.Count(file.String(), "other") - before; n != 1 {
				t.Errorf("%d of the records have the value, want 1: %s", n, &file)
			}
		}
		file.Reset()
		mask.Add("later-secret")
		write(func(*audit.Record) {})
		time.Sleep(time.Second)
		synctest.Wait()
		if text := file.String(); strings.Contains(text, "later-secret") ||
			strings.Count(text, "***") != 2 {
			t.Errorf("got %s", text)
		}
	})
}
