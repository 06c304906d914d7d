package auditlog

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mcpgateway/internal/audit"
)

// A follower is a test that follows a file.
type follower struct {
	*Files
	t   *testing.T
	got []string
}

// want reads what is new, and compares the ids of all new records.
func (f *follower) want(ids string) {
	f.t.Helper()
	m, err := newMatcher(&Query{})
	if err != nil {
		f.t.Fatal(err)
	}
	f.got = nil
	err = f.readNew(f.t.Context(), m, func(r *RecordLine) error {
		f.got = append(f.got, r.Text(ID))
		return nil
	})
	if got := strings.Join(f.got, " "); err != nil || got != ids {
		f.t.Errorf("got %q, want %q; %v", got, ids, err)
	}
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// Follow continues across rotations, also if several files were rotated or compressed between two
// looks, waits for lines that are not complete, and begins again in a file that was truncated.
func TestFollowAcrossRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l, err := OpenNew(path)
	if err != nil {
		t.Fatal(err)
	}
	f := &follower{Files: l, t: t}
	defer f.Close()
	f.want("")
	one := lines(t, call(0))
	appendTo(t, path, one[:20])
	f.want("")
	appendTo(t, path, one[20:])
	f.want("0")
	f.want("")

	// a record that is written just before the rotation
	appendTo(t, path, lines(t, call(1)))
	rename(t, path, path+".1")
	f.want("1")
	appendTo(t, path+".1", lines(t, call(2))) // by another process, to the renamed file
	f.want("2")
	appendTo(t, path, lines(t, call(3)))
	f.want("3")

	// two rotations, and the first file is compressed
	appendTo(t, path, lines(t, call(4)))
	rename(t, path+".1", path+".3")
	rename(t, path, path+".2")
	store(t, path+".1.gz", lines(t, call(5)))
	appendTo(t, path, lines(t, call(6)))
	f.want("4 5 6")

	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	f.want("")
	appendTo(t, path, lines(t, call(7)))
	f.want("7")
}

// After Each, Follow begins where Each has ended.
func TestFollowAfterEach(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	store(t, path, lines(t, calls(0, 5)...)+lines(t, call(5))[:30])
	l := open(t, path)
	at, _, err := l.Last(t.Context(), &Query{}, 2)
	if err != nil {
		t.Fatal(err)
	}
	if got := ids(t, l, Query{}, at); got != "3 4" {
		t.Errorf("got %s", got)
	}
	appendTo(t, path, lines(t, call(5))[30:]+lines(t, call(6)))
	ctx, cancel := context.WithCancel(t.Context())
	var got []string
	err = l.Follow(ctx, &Query{Outcomes: []string{string(audit.OK)}}, func(r *RecordLine) error {
		if got = append(got, r.Text(ID)); len(got) == 2 {
			cancel()
		}
		return nil
	}, func() error { return nil })
	if err != context.Canceled || strings.Join(got, " ") != "5 6" {
		t.Errorf("got %q, %v", got, err)
	}
	if l.Skipped != (Skipped{}) {
		t.Errorf("skipped %+v", l.Skipped)
	}
}
