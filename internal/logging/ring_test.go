package logging

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
)

func texts(lines []LogLine) (all []string) {
	for _, l := range lines {
		all = append(all, strings.TrimSpace(l.Backend+"|"+l.Message+"|"+l.Attrs))
	}
	return all
}

func wantTexts(t *testing.T, lines []LogLine, want ...string) {
	t.Helper()
	if got := texts(lines); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("lines %q\nwant  %q", got, want)
	}
}

// The ring has each record of level info and above, and each line that a backend writes to stderr,
// whatever the level of the log is. Debug records of the gateway are not even made.
func TestRing_Levels(t *testing.T) {
	var out bytes.Buffer
	ring := new(Ring)
	log := New(&out, Options{Level: slog.LevelError, Ring: ring})
	log.Debug("debug")
	log.Info("info", "records", 3)
	log.Warn("warn")
	log.Error("error")
	ofBackend := log.With("backend", "a", "session", "s")
	ofBackend.Log(OutputContext(), slog.LevelDebug, "stderr: one")
	ofBackend.Log(OutputContext(), slog.LevelDebug-4, "stderr: two") // log.stderr: off
	ofBackend.Debug("debug")
	log.Info("backend of the record", "backend", "b")
	log.Info("several", "backend", "a, b")
	wantTexts(t, ring.Lines(LineFilter{}), "|info|records=3", "|warn|", "|error|",
		"a|stderr: one|session=s", "a|stderr: two|session=s", "b|backend of the record|",
		`|several|backend="a, b"`)
	if lines := strings.Count(out.String(), "\n"); lines != 1 || !strings.Contains(out.String(),
		"msg=error") {
		t.Errorf("the log has %s", out.String())
	}
	if ctx := context.Background(); log.Enabled(ctx, slog.LevelDebug) ||
		ofBackend.WithGroup("g").Enabled(ctx, slog.LevelDebug) {
		t.Error("debug records are enabled")
	}
	first := ring.Lines(LineFilter{})[0]
	if first.Seq != 1 || first.Level != slog.LevelInfo || time.Since(first.Time) > time.Minute {
		t.Errorf("%+v", first)
	}
}

// The lines are masked like the log on stderr, also in values of groups and errors.
func TestRing_Masks(t *testing.T) {
	ring, mask := new(Ring), NewMask("s3cret-value")
	log := New(io.Discard, Options{Format: "json", Mask: mask, Ring: ring})
	log.With("url", "https://u:s3cret-value@h").Info("has s3cret-value", "err",
		errors.New("bad s3cret-value"), slog.Group("g", "x", []byte("s3cret-value")))
	log.WithGroup("g").With("x", "s3cret-value").Info("m", "backend", "a")
	for _, l := range ring.Lines(LineFilter{}) {
		if all := fmt.Sprint(l); strings.Contains(all, "s3cret-value") || l.Backend != "" {
			t.Errorf("not masked: %s", all)
		}
	}
	if n := len(ring.Lines(LineFilter{})); n != 2 {
		t.Errorf("%d lines", n)
	}
}

// A backend that writes much removes only its own lines.
func TestRing_NoisyBackendRemovesOnlyItsOwnLines(t *testing.T) {
	ring := new(Ring)
	log := New(io.Discard, Options{Ring: ring})
	log.Info("first")
	log.Info("quiet", "backend", "quiet")
	noisy := log.With("backend", "noisy")
	for i := range 10_000 {
		noisy.Info(fmt.Sprint("line ", i, strings.Repeat("x", 100)))
	}
	wantTexts(t, ring.Lines(LineFilter{Backends: []string{"", "quiet"}}), "|first|", "quiet|quiet|")
	lines := ring.Lines(LineFilter{Backends: []string{"noisy"}})
	if n := len(lines); n < 500 || n > maxRingBackend/ringLineSize ||
		!strings.HasPrefix(lines[n-1].Message, "line 9999") {
		t.Errorf("%d lines", n)
	}
	if size := ring.byBackend["noisy"].size; size > maxRingBackend {
		t.Errorf("%d bytes", size)
	}
	noisy.Info(strings.Repeat("ä", maxRingText), "text", strings.Repeat("y", 1<<20))
	last := ring.Lines(LineFilter{Last: 1})[0]
	if len(last.Message) > maxRingText || len(last.Attrs) > maxRingText ||
		!strings.HasSuffix(last.Message, "ä…") || !strings.HasSuffix(last.Attrs, "y…") {
		t.Errorf("texts of %d and %d bytes", len(last.Message), len(last.Attrs))
	}
}

// All lines together are bounded. Those lose lines that have the most.
func TestRing_TotalBound(t *testing.T) {
	ring := new(Ring)
	text := strings.Repeat("x", 1000)
	ring.add(LogLine{Backend: "small", Message: "stays"})
	for i := range 200 * 100 {
		ring.add(LogLine{Backend: fmt.Sprint("b", i%200), Message: text})
	}
	total := 0
	for _, l := range ring.Lines(LineFilter{}) {
		total += l.size()
	}
	if total != ring.size || total > maxRing || total < maxRing/2 {
		t.Errorf("%d bytes, counted %d", total, ring.size)
	}
	wantTexts(t, ring.Lines(LineFilter{Backends: []string{"small"}}), "small|stays|")
}

func TestRing_Filter(t *testing.T) {
	ring, start := new(Ring), time.Now()
	for i := range 6 {
		ring.add(LogLine{Time: start.Add(time.Duration(i) * time.Second),
			Backend: []string{"", "a", "b"}[i%3], Message: fmt.Sprint(i)})
	}
	after := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	wantTexts(t, ring.Lines(LineFilter{Backends: []string{"a"}}), "a|1|", "a|4|")
	wantTexts(t, ring.Lines(LineFilter{After: 4}), "a|4|", "b|5|")
	wantTexts(t, ring.Lines(LineFilter{From: after(2), To: after(3)}), "b|2|", "|3|")
	wantTexts(t, ring.Lines(LineFilter{Last: 2, To: after(3)}), "b|2|", "|3|")
	wantTexts(t, ring.Lines(LineFilter{Backends: []string{"none"}}))
}

// A follower gets each line once. Of lines that were removed before it read them, it gets the
// number, which counts only those that its filter selects.
func TestRing_Follow(t *testing.T) {
	ring := new(Ring)
	ring.add(LogLine{Backend: "a", Message: "1"})
	all, ofA := ring.Follow(LineFilter{}), ring.Follow(LineFilter{Backends: []string{"a"}})
	defer all.Close()
	defer ofA.Close()
	next := func(f *LogFollower, wantLost int, want ...string) {
		t.Helper()
		lines, lost, err := f.Next(t.Context())
		if wantTexts(t, lines, want...); lost != wantLost || err != nil {
			t.Errorf("%d lost, %v", lost, err)
		}
	}
	next(all, 0, "a|1|")
	next(ofA, 0, "a|1|")
	ring.add(LogLine{Backend: "b", Message: "2"})
	ring.add(LogLine{Backend: "a", Message: "3"})
	next(all, 0, "b|2|", "a|3|")
	next(ofA, 0, "a|3|")
	const n = 4000
	for range n {
		ring.add(LogLine{Backend: "b", Message: "xxxx"})
	}
	lines, lost, err := all.Next(t.Context())
	if err != nil || lost == 0 || len(lines)+lost != n {
		t.Errorf("%d lines, %d lost, %v", len(lines), lost, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	// the lines of b wake the follower of a, and are none for it
	if lines, lost, err := ofA.Next(ctx); len(lines)+lost > 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("%d lines, %d lost, %v", len(lines), lost, err)
	}
	all.Close()
	if len(ring.followers) != 1 {
		t.Error("the follower is not removed")
	}
}

// Concurrent records and followers: each follower accounts for each line.
func TestRing_Concurrently(t *testing.T) {
	ring := new(Ring)
	log := New(io.Discard, Options{Ring: ring})
	const writers, each = 4, 2000
	var writing, reading sync.WaitGroup
	for range 2 {
		f := ring.Follow(LineFilter{})
		reading.Go(func() {
			defer f.Close()
			seq := uint64(0)
			for count := 0; count < writers*each; {
				lines, lost, err := f.Next(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				for _, l := range lines {
					if l.Seq <= seq {
						t.Errorf("line %d after %d", l.Seq, seq)
					}
					seq = l.Seq
				}
				count += len(lines) + lost
			}
		})
	}
	for i := range writers {
		writing.Go(func() {
			own := log.With("backend", fmt.Sprint("b", i))
			for n := range each {
				own.Info("line", "n", n)
			}
		})
	}
	writing.Wait()
	reading.Wait()
	for _, l := range ring.Lines(LineFilter{}) {
		if !strings.HasPrefix(l.Attrs, "n=") || strings.ContainsAny(l.Attrs, "\n ") {
			t.Fatalf("%+v", l)
		}
	}
}

// A ring without lines has no memory for lines, and a debug record costs nothing because of it.
func TestRing_Allocations(t *testing.T) {
	ring := new(Ring)
	log := New(io.Discard, Options{Ring: ring}).With("backend", "a")
	if n := testing.AllocsPerRun(100, func() { log.Debug("m") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if ring.byBackend != nil || ring.buffer.Cap() != 0 {
		t.Error("the empty ring has memory")
	}
}
