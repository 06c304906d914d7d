package transport

import (
	"errors"
	"io"
	"strings"
	"testing"
)

func TestReceiveQuotaOfAllBackends_F_SEC_9(t *testing.T) {
	all := NewReceiveQuota(100<<10, nil)
	one, two := NewReceiveQuota(60<<10, all).Lease(), NewReceiveQuota(60<<10, all).Lease()
	if err := one.Resize(61 << 10); err == nil ||
		!strings.Contains(err.Error(), "from this backend") {
		t.Errorf("got %v", err)
	}
	if err := one.Resize(60 << 10); err != nil {
		t.Error(err)
	}
	if err := two.Resize(50 << 10); err == nil ||
		!strings.Contains(err.Error(), "from all backends") {
		t.Errorf("got %v", err)
	}
	if err := two.Resize(maxUncounted); err != nil {
		t.Error(err)
	}
	if one.Release(); all.InUse() != 0 || one.quota.InUse() != 0 || two.quota.InUse() != 0 {
		t.Errorf("%d bytes are in use", all.InUse())
	}
	if err := two.Resize(60 << 10); err != nil {
		t.Error(err)
	}
}

// A line of a program is counted if it is longer than the capacity of a pipe.
func TestReceiveQuotaOfLines_F_SEC_9(t *testing.T) {
	in := NewReceiveQuota(1<<20, nil)
	long := `{"jsonrpc":"2.0","id":7,"result":{"a":"` + strings.Repeat("x", 256<<10) + `"}}` + "\n"
	r, w := io.Pipe()
	l := &LineReader{r: r, limit: 8 << 20, lease: in.Lease()}
	go func() {
		io.WriteString(w, long)
		io.WriteString(w, long+long[:20])
		w.Close()
	}()
	if m, err := l.ReadMessage(); err != nil || m.ID() != "7" {
		t.Fatalf("got %s, %v", m.Raw(), err)
	}
	if n := in.InUse(); n != 0 {
		t.Errorf("%d bytes are in use", n)
	}
	if err := in.acquire(1 << 20); err != nil {
		t.Fatal(err)
	}
	_, err := l.ReadMessage()
	if malformed, is := errors.AsType[*MalformedError](err); !is || malformed.ID != "7" ||
		!malformed.LooksLikeResponse || !strings.Contains(malformed.Error(), "try again later") {
		t.Fatalf("got %v", err)
	}
	if _, err = l.ReadMessage(); err == nil {
		t.Error("a truncated line is a message")
	}
	if _, err = l.ReadMessage(); err != io.EOF {
		t.Errorf("got %v", err)
	}
	if n := in.InUse(); n != 1<<20 {
		t.Errorf("%d bytes are in use", n)
	}
}
