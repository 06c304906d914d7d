package httpclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// tokens is an Authorizer whose tokens are numbered.
type tokens struct {
	mu     sync.Mutex
	number int
	calls  int
	decide func(number int) (again bool, err error) // after a refusal; nil = another token
	err    error                                    // of Token
}

func (a *tokens) Token(context.Context) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil {
		return "", a.err
	}
	if a.number == 0 {
		return "", nil
	}
	return fmt.Sprintf("token-%d", a.number), nil
}

func (a *tokens) Refused(_ context.Context, token string, resp *http.Response) (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls++
	if want := fmt.Sprintf("token-%d", a.number); token != "" && token != want {
		return false, fmt.Errorf("refused %s, want %s", token, want)
	}
	if a.decide != nil {
		return a.decide(a.number)
	}
	a.number++
	return true, nil
}

// requires lets the stub accept only one token.
func requires(s *stub, token string, status int) {
	s.post = func(w http.ResponseWriter, r *http.Request, m wire.Message) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, strings.Repeat("x", 1<<20))
			return
		}
		writeResult(w, m, "{}")
	}
}

// A call whose token was refused did not run: it is sent again with the next token, and once.
func TestRefusedCallIsSentAgainWithAnotherToken(t *testing.T) {
	for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden} {
		synctest.Test(t, func(t *testing.T) {
			s, a := newStub(t), &tokens{}
			reconnects := make(map[wire.ID]int)
			c := ready(t, s, func(o *Options) {
				o.Authorizer, o.OnReconnect = a, func(id wire.ID) { reconnects[id]++ }
			})
			requires(s, "token-2", status)
			id := c.call("tools/call")
			if m, _, err := c.Read(); err != nil || m.ID() != id {
				t.Errorf("%s, %v", m.Raw(), err)
			}
			synctest.Wait()
			if want := s.count("tools/call") - 1; len(reconnects) != 1 || reconnects[id] != want {
				t.Errorf("%v reconnects, want %d", reconnects, want)
			}
			var got []string
			for _, r := range s.requests("tools/call") {
				got = append(got, r.header.Get("Authorization"))
			}
			if strings.Join(got, "|") != "|Bearer token-1|Bearer token-2" {
				t.Errorf("sent with %q", got)
			}
			c.call("tools/call")
			if _, _, err := c.Read(); err != nil || s.count("tools/call") != 4 {
				t.Errorf("%v, %d requests", err, s.count("tools/call"))
			}
			c.Close()
			if end := s.requests("DELETE"); len(end) != 1 ||
				end[0].header.Get("Authorization") != "Bearer token-2" {
				t.Errorf("the end of the session: %v", end)
			}
		})
	}
}

func TestCallWithoutTokenDidNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a := newStub(t), &tokens{number: 1}
		c := ready(t, s, func(o *Options) { o.Authorizer = a })
		requires(s, "token-0", http.StatusUnauthorized)
		errLogin := errors.New("somebody has to log in")
		a.decide = func(int) (bool, error) { return false, errLogin }
		for range 2 {
			id := c.call("tools/call")
			_, _, err := c.Read()
			lost, is := errors.AsType[*transport.CallLostError](err)
			if !is || lost.MayHaveRun || lost.ID != id || !errors.Is(err, errLogin) {
				t.Errorf("%v", err)
			}
			if _, is := errors.AsType[*AuthorizationError](err); !is {
				t.Errorf("%T", err)
			}
			a.err = errLogin // the second call is not even sent
		}
		if n := s.count("tools/call"); n != 1 {
			t.Errorf("%d requests", n)
		}
	})
}

func TestRefusalsOfOneRequestAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a := newStub(t), &tokens{}
		c := ready(t, s, func(o *Options) { o.Authorizer = a })
		requires(s, "never", http.StatusUnauthorized)
		c.call("tools/call")
		_, _, err := c.Read()
		lost, is := errors.AsType[*transport.CallLostError](err)
		if !is || lost.MayHaveRun || !strings.Contains(err.Error(), "HTTP 401") ||
			!strings.Contains(err.Error(), "refuses the access tokens") {
			t.Errorf("%v", err)
		}
		if n := s.count("tools/call"); n != maxRefusals+1 || a.calls != maxRefusals {
			t.Errorf("%d requests, %d times asked", n, a.calls)
		}
	})
}

// A 401 that is not about OAuth is an ordinary response.
func TestRefusalThatIsNotHandled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		a := &tokens{decide: func(int) (bool, error) { return false, nil }}
		c := ready(t, s, func(o *Options) { o.Authorizer = a })
		requires(s, "never", http.StatusUnauthorized)
		c.call("tools/call")
		_, _, err := c.Read()
		if err == nil || !strings.Contains(err.Error(), "set a header Authorization") ||
			!strings.Contains(err.Error(), "or use gateway login") {
			t.Errorf("%v", err)
		}
	})
}

// A part of a token would not be masked in the log: errors contain none.
func TestErrorBodyThatRepeatsTheToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a := newStub(t), &tokens{number: 1}
		c := ready(t, s, func(o *Options) { o.Authorizer = a })
		for _, status := range []int{http.StatusInternalServerError, http.StatusTemporaryRedirect} {
			s.post = func(w http.ResponseWriter, r *http.Request, _ wire.Message) {
				token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
				text := strings.Repeat("-", maxExcerpt-5) + token
				w.Header().Set("Location", "http://other.example/"+text[25:])
				w.WriteHeader(status)
				_, _ = io.WriteString(w, text)
			}
			c.call("tools/call")
			_, _, err := c.Read()
			if err == nil || strings.Contains(err.Error(), "tok") ||
				!strings.Contains(err.Error(), "--") {
				t.Errorf("%d: %v", status, err)
			}
		}
	})
}

// net/http adds the cookies of the jar to the header of each request.
func TestRefusedCallIsSentAgainWithEachCookieOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a := newStub(t), &tokens{}
		c := ready(t, s, func(o *Options) {
			o.Authorizer = a
			o.Headers = map[string]string{"Cookie": "own=1"}
		})
		s.post = func(w http.ResponseWriter, r *http.Request, m wire.Message) {
			if r.Header.Get("Authorization") != "Bearer token-2" {
				http.SetCookie(w, &http.Cookie{Name: "jar", Value: r.Header.Get("Authorization")})
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			writeResult(w, m, "{}")
		}
		c.call("tools/call")
		if _, _, err := c.Read(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		calls := s.requests("tools/call")
		got := calls[len(calls)-1].header.Values("Cookie")
		if len(calls) != 3 || strings.Join(got, "; ") != `own=1; jar="Bearer token-1"` {
			t.Errorf("%d requests, the last one with the cookies %q", len(calls), got)
		}
	})
}

// A server may send the body of its refusal slowly, or never.
func TestRefusalWhoseBodyDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a := newStub(t), &tokens{}
		c := ready(t, s, func(o *Options) { o.Authorizer = a })
		s.post = func(w http.ResponseWriter, r *http.Request, m wire.Message) {
			if r.Header.Get("Authorization") == "" {
				w.WriteHeader(http.StatusUnauthorized)
				_, _ = io.WriteString(w, "x")
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
				return
			}
			writeResult(w, m, "{}")
		}
		c.call("tools/call")
		if _, _, err := c.Read(); err != nil {
			t.Error(err)
		}
	})
}
