package transport

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"mcpgateway/internal/wire"
)

const quarter = 256 << 10 // bytes of an answer, of which a few fill the Intake of these tests

// noRoom reads the Lost of a request for which there was no room.
func (c *client) noRoom() {
	c.Helper()
	_, _, err := c.Read()
	if lost, is := errors.AsType[*Lost](err); !is || !strings.Contains(lost.Error(), "the answer cannot be read: messages from this backend that are not complete may have") {
		c.Errorf("got %v", err)
	}
}

// Bodies that stall fill the Intake: one more large answer fails, a short one does not, and when the
// others are gone there is room again.
func TestIntakeOfBodies_F_SEC_9(t *testing.T) {
	for _, announced := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newStub(t)
			in := NewIntake(1<<20, NewIntake(1<<30, nil))
			stalled := make(chan bool)
			s.post = func(w http.ResponseWriter, r *http.Request, m wire.Message) {
				text := result(m, `{"a":"`+strings.Repeat("x", quarter)+`"}`)
				if announced && m.Method() == "tools/call" {
					w.Header().Set("Content-Length", fmt.Sprint(len(text)))
				}
				switch m.Method() {
				case "prompts/list":
					answer(w, m, "{}")
				case "resources/read":
					io.WriteString(w, text)
				default:
					io.WriteString(w, text[:len(text)-1])
					w.(http.Flusher).Flush()
					select {
					case <-stalled:
						io.WriteString(w, text[len(text)-1:])
					case <-r.Context().Done():
					}
				}
			}
			c := ready(t, s, func(o *HTTPOptions) { o.Intake = in })
			failed := 0
			for range 10 {
				before := in.Held()
				c.call("tools/call")
				synctest.Wait()
				if in.Held() > before {
					continue // it stalls
				}
				c.noRoom()
				failed++
			}
			if failed < 6 || failed > 8 {
				t.Fatalf("%d of 10 failed, %d bytes are held", failed, in.Held())
			}
			id := c.call("prompts/list")
			c.want(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{}}`, id))
			for range 10 - failed {
				stalled <- true
				if m := c.read(); m.Kind() != wire.Response {
					t.Errorf("got %s", m.Raw())
				}
			}
			synctest.Wait()
			if n := in.Held(); n != 0 {
				t.Errorf("%d bytes are held", n)
			}
			id = c.call("resources/read")
			if m := c.read(); m.ID() != id || m.Kind() != wire.Response {
				t.Errorf("got %s", m.Raw())
			}
		})
	}
}

// An event counts until its blank line has come, whether it has one line of data or many.
func TestIntakeOfStreams_F_SEC_9(t *testing.T) {
	for name, data := range map[string]func(string) string{
		"a line without its end": func(text string) string { return "data: " + text },
		"a line":                 func(text string) string { return "data: " + text + "\n" },
		"many lines": func(text string) string {
			return "data: " + strings.ReplaceAll(text, `", "`, "\",\ndata: \"") + "\n"
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t)
				in := NewIntake(1<<20, nil)
				s.post = func(w http.ResponseWriter, r *http.Request, m wire.Message) {
					if m.Method() != "tools/call" {
						stream(w, sse(result(m, "{}")))
						return
					}
					text := result(m, `["`+strings.Repeat(strings.Repeat("x", 1<<10)+`","`, quarter>>10)+`"]`)
					stream(w, data(strings.ReplaceAll(text, `x","`, `x", "`)))
					hang(r)
				}
				c := ready(t, s, func(o *HTTPOptions) { o.Intake = in })
				var open []wire.ID
				for range 10 {
					open = append(open, c.call("tools/call"))
					synctest.Wait()
				}
				if n := in.Held(); n < quarter || n > 1<<20 {
					t.Errorf("%d bytes are held", n)
				}
				id := c.call("ping")
				for { // what is given up is told when its event ends, or never
					m, _, err := c.Read()
					if err == nil && m.ID() == id {
						break
					} else if err == nil {
						t.Fatalf("got %s", m.Raw())
					}
				}
				for _, id := range open {
					c.cancel(id)
				}
				synctest.Wait()
				if n := in.Held(); n != 0 {
					t.Errorf("%d bytes are held", n)
				}
			})
		})
	}
}

// A whole event for which there is no room makes its request fail.
func TestIntakeOfAnEvent_F_SEC_9(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		in := NewIntake(64<<10, NewIntake(1<<30, nil))
		s.post = func(w http.ResponseWriter, r *http.Request, m wire.Message) {
			stream(w, sse(result(m, `{"a":"`+strings.Repeat("x", quarter)+`"}`)))
			hang(r)
		}
		c := ready(t, s, func(o *HTTPOptions) { o.Intake = in })
		c.call("tools/call")
		c.noRoom()
		c.Close()
		if n := in.Held(); n != 0 {
			t.Errorf("%d bytes are held", n)
		}
	})
}

// A line of a program counts once it is longer than what a pipe holds.
func TestIntakeOfLines_F_SEC_9(t *testing.T) {
	in := NewIntake(1<<20, nil)
	long := result(wire.NewRequest("7", "m", nil), `{"a":"`+strings.Repeat("x", quarter)+`"}`) + "\n"
	r, w := io.Pipe()
	l := &lineReader{r: r, limit: 8 << 20, held: receipt{of: in}}
	go func() {
		io.WriteString(w, long)
		io.WriteString(w, long+long[:20])
		w.Close()
	}()
	if m, err := l.readMessage(); err != nil || m.ID() != "7" {
		t.Fatalf("got %s, %v", m.Raw(), err)
	}
	if n := in.Held(); n != 0 {
		t.Errorf("%d bytes are held", n)
	}
	if err := in.take(1 << 20); err != nil {
		t.Fatal(err)
	}
	_, err := l.readMessage()
	if noise, is := errors.AsType[*Noise](err); !is || noise.ID != "7" || !noise.Answer || !strings.Contains(noise.Error(), "try again later") {
		t.Fatalf("got %v", err)
	}
	if _, err = l.readMessage(); err == nil {
		t.Error("a line that is cut is a message")
	}
	if _, err = l.readMessage(); err != io.EOF {
		t.Errorf("got %v", err)
	}
	if n := in.Held(); n != 1<<20 {
		t.Errorf("%d bytes are held", n)
	}
}

func TestIntakeOfAllBackends_F_SEC_9(t *testing.T) {
	all := NewIntake(100<<10, nil)
	one, two := receipt{of: NewIntake(60<<10, all)}, receipt{of: NewIntake(60<<10, all)}
	if err := one.hold(61 << 10); err == nil || !strings.Contains(err.Error(), "from this backend") {
		t.Errorf("got %v", err)
	}
	if err := one.hold(60 << 10); err != nil {
		t.Error(err)
	}
	if err := two.hold(50 << 10); err == nil || !strings.Contains(err.Error(), "from all backends") {
		t.Errorf("got %v", err)
	}
	if err := two.hold(maxUncounted); err != nil {
		t.Error(err)
	}
	if one.release(); all.Held() != 0 || one.of.Held() != 0 || two.of.Held() != 0 {
		t.Errorf("%d bytes are held", all.Held())
	}
	if err := two.hold(60 << 10); err != nil {
		t.Error(err)
	}
}
