package audit

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"mcpgateway/internal/logging"
)

var usual = Record{
	Seq:  123_456,
	Time: time.Date(2026, 1, 2, 3, 4, 5, 678912345, time.Local), Session: "3f2a9c",
	Client: "claude-code/2.0.14", ID: "4211",
	BackendID: "815", Tool: "gh__search_issues", Backend: "gh", BackendTool: "search_issues",
	Outcome: OK,
	Dur:     1234567 * time.Nanosecond, BytesIn: 10, BytesOut: 2048,
	Arguments: []byte(`{"q": "go", "token": 1}`), Result: []byte(`{"content":[]}`),
}

type nowhere struct{}

func (nowhere) write(*queuedRecord) int64 { return 0 }
func (nowhere) flush() int64              { return 0 }

// BenchmarkWrite measures the time that a record adds to its call, for single and concurrent calls,
// while Run takes the records.
func BenchmarkWrite(b *testing.B) {
	benchmarkWrite(b, nowhere{})
}

// BenchmarkSustained measures the total time for a record if calls arrive faster than records can
// be encoded.
func BenchmarkSustained(b *testing.B) {
	benchmarkWrite(b, &lineSink{w: io.Discard, mask: manySecrets(20).String})
}

func benchmarkWrite(b *testing.B, to recordWriter) {
	running := func(b *testing.B, writes func(*Journal)) {
		j := newJournal(Options{})
		j.sink = to
		ctx, cancel := context.WithCancel(b.Context())
		var run sync.WaitGroup
		run.Go(func() { j.Run(ctx) })
		b.ReportAllocs()
		writes(j)
		cancel()
		run.Wait()
	}
	b.Run("alone", func(b *testing.B) {
		running(b, func(j *Journal) {
			for b.Loop() {
				j.Write(usual)
			}
		})
	})
	b.Run("parallel", func(b *testing.B) {
		running(b, func(j *Journal) {
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					j.Write(usual)
				}
			})
		})
	})
}

// BenchmarkEncode measures the work of Run for a record, compared with the rejected encoding by
// slog.
func BenchmarkEncode(b *testing.B) {
	for name, to := range map[string]func(*logging.Mask) recordWriter{
		"slog": func(mask *logging.Mask) recordWriter {
			return &logSink{logging.New(io.Discard,
				logging.Options{Format: "json", Mask: mask}).Handler(), mask.String}
		},
		"lines": func(
			mask *logging.Mask) recordWriter {
			return &lineSink{w: io.Discard, mask: mask.String}
		},
	} {
		for _, payloads := range []Payloads{None, All} {
			for _, secrets := range []int{0, 20, 400} {
				b.Run(
					fmt.Sprintf("%s/payloads=%s/secrets=%d", name, payloads, secrets),
					func(b *testing.B) {
						s := to(manySecrets(secrets))
						e := newJournal(Options{Payloads: payloads}).entry(usual)
						b.ReportAllocs()
						for b.Loop() {
							s.write(&e)
						}
					},
				)
			}
		}
	}
}

func manySecrets(n int) *logging.Mask {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%c%c_%032d", 'a'+i%26, 'a'+i/26, i)
	}
	return logging.NewMask(all...)
}

func TestAllocations_OfLines(t *testing.T) {
	e := newJournal(Options{}).entry(usual)
	l := &lineSink{w: io.Discard, mask: manySecrets(20).String}
	for range 1000 {
		l.write(&e) // until buf is as large as it gets
	}
	if n := testing.AllocsPerRun(1000, func() { l.write(&e) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
