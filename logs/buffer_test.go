package logs_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"mcpgateway/logs"
)

type pieces struct {
	all []string
	err error
}

func (p *pieces) Write(b []byte) (int, error) {
	p.all = append(p.all, string(b))
	return len(b), p.err
}

// Records go out together, each whole, in order, and none before its time.
func TestLinesGatherWholeRecords(t *testing.T) {
	out := &pieces{}
	l := logs.NewLines(out)
	var want strings.Builder
	for i := range 2000 {
		line := fmt.Sprintf("%d %s\n", i, strings.Repeat("x", i%200))
		want.WriteString(line)
		if _, err := l.Write([]byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	if strings.Join(out.all, "") != want.String() {
		t.Error("the text is not what was written")
	}
	for _, piece := range out.all {
		if !strings.HasSuffix(piece, "\n") || len(piece) > 64<<10 {
			t.Errorf("a piece of %d bytes ends in %q", len(piece), piece[len(piece)-1:])
		}
	}
	if len(out.all) > 6 {
		t.Errorf("%d writes", len(out.all))
	}
	if err := l.Flush(); err != nil || len(out.all) > 6 {
		t.Error("an empty buffer is written")
	}
}

func TestLinesTellsOfAFailedWrite(t *testing.T) {
	l := logs.NewLines(&pieces{err: errors.New("disk full")})
	if _, err := l.Write([]byte("a\n")); err != nil {
		t.Error(err)
	}
	if err := l.Flush(); err == nil {
		t.Error("no error")
	}
}
