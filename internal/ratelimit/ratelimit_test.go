package ratelimit

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/config"
	"mcpgateway/internal/principal"
)

func rateOf(limit config.RateLimit, burst int) config.Rate {
	return config.Rate{Limit: limit, Burst: burst}
}

func token(name string) *principal.Principal {
	return principal.FromToken(principal.TokenIdentity{Name: name})
}

func subjectOf(id string) *principal.Principal {
	return principal.FromSubject(principal.Subject{Issuer: "https://as.example", ID: id})
}

// passing returns the number of calls, of at most 10000, that pass at once.
func passing(l *RateLimiter, p *principal.Principal, backend string) (n int) {
	for n < 10_000 && l.Take(p, backend, Call) == nil {
		n++
	}
	return n
}

func wantPassing(t *testing.T, l *RateLimiter, p *principal.Principal, backend string, want int) {
	t.Helper()
	if n := passing(l, p, backend); n != want {
		t.Errorf("%d requests of %q to %q pass, want %d", n, p.Name(), backend, want)
	}
}

// Without limits every request passes, also with a nil RateLimiter.
func TestWithoutLimits(t *testing.T) {
	wantPassing(t, nil, token("a"), "b", 10_000)
	wantPassing(t, new(RateLimiter), token("a"), "b", 10_000)
	l := new(RateLimiter)
	l.SetBackends(map[string]config.Rate{"b": {}})
	if l.inUse.Load() {
		t.Error("a rate without a limit is a limit")
	}
}

// Burst requests pass at once, and then the configured number per time.
func TestBurstThenRate(t *testing.T) {
	for _, c := range []struct {
		rate  config.Rate
		burst int
		every time.Duration
	}{
		{rateOf("10/s", 0), 10, 100 * time.Millisecond},
		{rateOf("600/m", 5), 5, 100 * time.Millisecond},
		{rateOf("1/h", 0), 1, time.Hour},
		{rateOf("7/s", 1), 1, time.Second / 7},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := new(RateLimiter)
			l.SetBackends(map[string]config.Rate{"b": c.rate})
			wantPassing(t, l, nil, "b", c.burst)
			time.Sleep(c.every - time.Microsecond)
			wantPassing(t, l, nil, "b", 0)
			time.Sleep(2 * time.Microsecond)
			wantPassing(t, l, nil, "b", 1)
			time.Sleep(1000 * time.Hour) // a pause does not collect more than the burst
			wantPassing(t, l, nil, "b", min(c.burst, 10_000))
		})
	}
}

// A refused request passes after the wait of its Refusal, and not long before.
func TestWaitIsExact(t *testing.T) {
	for _, limit := range []config.RateLimit{"1/s", "3/s", "7/m", "1000/h", "1/h", "999999/h", "600/m",
		"12345/s"} {
		synctest.Test(t, func(t *testing.T) {
			l := new(RateLimiter)
			l.SetTokens(map[string]config.Rate{"token:a": rateOf(limit, 2)})
			for i := range 200 {
				refusal := l.Take(token("a"), "b", Call)
				if refusal == nil {
					continue
				}
				if refusal.Wait <= 0 || refusal.Wait%time.Millisecond != 0 {
					t.Fatalf("%s: the wait is %v", limit, refusal.Wait)
				}
				if refusal.Wait > 2*time.Millisecond && i%2 == 0 {
					time.Sleep(refusal.Wait - 2*time.Millisecond)
					if l.Take(token("a"), "b", Call) == nil {
						t.Fatalf("%s: passes too early", limit)
					}
					time.Sleep(2 * time.Millisecond)
				} else {
					time.Sleep(refusal.Wait)
				}
				if again := l.Take(token("a"), "b", Call); again != nil {
					t.Fatalf("%s: after a wait of %v: %v", limit, refusal.Wait, again)
				}
			}
		})
	}
}

// A token's limit is for all requests of its holder, and not for those of others. The limit of a
// profile is for all clients with the profile together, that of a backend for all clients.
func TestWhoseLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := new(RateLimiter)
		l.SetTokens(map[string]config.Rate{"token:ann": rateOf("3/h", 0), "token:bob": rateOf("5/h", 0)})
		wantPassing(t, l, token("ann"), "x", 3)
		wantPassing(t, l, token("ann"), "y", 0)
		wantPassing(t, l, token("ann").WithProfile("p"), "y", 0) // the same principal
		wantPassing(t, l, token("bob"), "x", 5)
		wantPassing(t, l, token("eve"), "x", 10_000)
		wantPassing(t, l, nil, "x", 10_000)
		wantPassing(t, l, subjectOf("ann"), "x", 10_000)

		l = new(RateLimiter)
		l.SetProfiles(map[string]config.Rate{"p": rateOf("5/h", 0), "q": rateOf("2/h", 0)})
		var stdin *principal.Principal
		wantPassing(t, l, token("ann").WithProfile("p").WithProfile("q"), "x", 2)
		wantPassing(t, l, token("bob").WithProfile("p"), "x", 3)
		wantPassing(t, l, stdin.WithProfile("p"), "y", 0)
		wantPassing(t, l, token("bob").WithProfile("r"), "x", 10_000)
		wantPassing(t, l, token("bob"), "x", 10_000)

		l = new(RateLimiter)
		l.SetBackends(map[string]config.Rate{"x": rateOf("4/h", 0)})
		wantPassing(t, l, token("ann"), "x", 4)
		wantPassing(t, l, token("bob"), "x", 0)
		wantPassing(t, l, nil, "x", 0)
		wantPassing(t, l, nil, "y", 10_000)
		wantPassing(t, l, nil, "", 10_000)
	})
}

// A request that one limit refuses counts for none of the others. The Refusal is that of the limit
// with the longest wait.
func TestRefusedRequestCountsForNoLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := new(RateLimiter)
		l.SetTokens(map[string]config.Rate{"token:ann": rateOf("60/m", 10)})
		l.SetProfiles(map[string]config.Rate{"p": rateOf("60/m", 8)})
		l.SetBackends(map[string]config.Rate{"x": rateOf("1/m", 3)})
		ann := token("ann").WithProfile("p")
		wantPassing(t, l, ann, "x", 3)
		for range 100 {
			refusal := l.Take(ann, "x", Call)
			if want := "the rate limit of this backend (1/m) is reached: try again in 1m0.001s"; refusal == nil ||
				refusal.Error() != want {
				t.Fatalf("got %v, want %s", refusal, want)
			}
		}
		wantPassing(t, l, ann, "y", 5)
		if refusal := l.Take(ann, "y", Call); refusal.Error() !=
			"the rate limit of profile p (60/m) is reached: try again in 1.001s" {
			t.Errorf("got %v", refusal)
		}
		wantPassing(t, l, token("ann"), "y", 2)
		if refusal := l.Take(ann, "y", Call); refusal.Error() !=
			"the rate limit of this token (60/m) is reached: try again in 1.001s" {
			t.Errorf("got %v", refusal)
		}
		if refusal := l.Take(ann, "x", Call); refusal.Wait != time.Minute+time.Millisecond {
			t.Errorf("the wait is %v", refusal.Wait)
		}
	})
}

// However many clients send at once, no more than burst + rate × t requests pass, and no fewer.
func TestConcurrentRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := new(RateLimiter)
		l.SetTokens(map[string]config.Rate{"token:ann": rateOf("100/s", 50)})
		l.SetBackends(map[string]config.Rate{"x": rateOf("200/s", 1000)})
		var passed atomic.Int64
		const duration = 10 * time.Second
		began := time.Now()
		var senders sync.WaitGroup
		for i := range 32 {
			senders.Go(func() {
				for time.Since(began) < duration {
					if l.Take(token("ann"), "x", Call) == nil {
						passed.Add(1)
					}
					time.Sleep(time.Duration(1+i%5) * time.Millisecond)
				}
			})
		}
		senders.Wait()
		t.Logf("%d of about 130000 requests passed", passed.Load())
		if n, most := passed.Load(), int64(50+100*10); n > most || n < most-1 {
			t.Errorf("%d requests passed, want %d", n, most)
		}
	})
}

// The same without virtual time: the lock holds under the race detector.
func TestConcurrentRequestsAndChanges(t *testing.T) {
	l := new(RateLimiter)
	var passed atomic.Int64
	var all sync.WaitGroup
	l.SetBackends(map[string]config.Rate{"x": rateOf("1/h", 100)})
	for range 8 {
		all.Go(func() {
			for i := range 500 {
				if l.Take(subjectOf(fmt.Sprint(i)), "x", Call) == nil {
					passed.Add(1)
				}
			}
		})
	}
	all.Go(func() {
		for i := range 100 {
			l.SetBackends(map[string]config.Rate{"x": rateOf("1/h", 100-i%2)})
			l.SetTokens(map[string]config.Rate{fmt.Sprint(i): rateOf("1/s", 1)})
			l.SetProfiles(nil)
		}
	})
	all.Wait()
	if n := passed.Load(); n > 100 {
		t.Errorf("%d requests passed", n)
	}
}

// A changed limit keeps its level: what was used stays used. A removed limit is no limit, and
// begins with a full burst when it is added again.
func TestChangedLimitKeepsLevel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, s := range []struct {
			set     func(*RateLimiter, config.Rate)
			p       *principal.Principal
			backend string
		}{
			{func(l *RateLimiter, r config.Rate) {
				l.SetTokens(map[string]config.Rate{"token:ann": r})
			}, token("ann"), ""},
			{func(l *RateLimiter, r config.Rate) {
				l.SetProfiles(map[string]config.Rate{"p": r})
			}, token("ann").WithProfile("p"), "x"},
			{func(l *RateLimiter, r config.Rate) {
				l.SetBackends(map[string]config.Rate{"x": r})
			}, nil, "x"},
		} {
			l := new(RateLimiter)
			s.set(l, rateOf("60/m", 10))
			wantPassing(t, l, s.p, s.backend, 10)
			s.set(l, rateOf("600/m", 100)) // larger
			wantPassing(t, l, s.p, s.backend, 0)
			time.Sleep(time.Second)
			wantPassing(t, l, s.p, s.backend, 10)
			time.Sleep(time.Hour) // full: 100
			s.set(l, rateOf("60/m", 3))
			wantPassing(t, l, s.p, s.backend, 3) // smaller: not more than the burst
			time.Sleep(time.Second)
			s.set(l, rateOf("60/m", 3)) // unchanged
			wantPassing(t, l, s.p, s.backend, 1)
			s.set(l, config.Rate{})
			wantPassing(t, l, s.p, s.backend, 10_000)
			s.set(l, rateOf("60/m", 3))
			wantPassing(t, l, s.p, s.backend, 3)
		}
	})
}

// Requests that follow up have a limit of their own, ten times as large, and at least 10/s and 100
// at once. They do not use up the limit of calls, nor do calls use up theirs.
func TestFollowUps(t *testing.T) {
	for _, c := range []struct {
		rate             config.Rate
		burst, perSecond int
	}{{rateOf("2/h", 1), 100, 10}, {rateOf("100/s", 0), 1000, 1000}} {
		synctest.Test(t, func(t *testing.T) {
			l := new(RateLimiter)
			l.SetTokens(map[string]config.Rate{"token:ann": c.rate})
			followUps := func() (n int) {
				for n < 10_000 && l.Take(token("ann"), "x", FollowUp) == nil {
					n++
				}
				return n
			}
			wantPassing(t, l, token("ann"), "x", c.rate.Capacity())
			if n := followUps(); n != c.burst {
				t.Errorf("%d pass at once", n)
			}
			time.Sleep(time.Second)
			if n := followUps(); n != c.perSecond {
				t.Errorf("%d pass in a second", n)
			}
			time.Sleep(time.Hour)
			followUps()
			wantPassing(t, l, token("ann"), "x", c.rate.Capacity())
		})
	}
}

// The refusals of one limit are logged once a minute, with their number.
func TestRefusalsAreLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := new(RateLimiter)
		l.SetTokens(map[string]config.Rate{"token:ann": rateOf("1/h", 1), "token:bob": rateOf("1/h", 1)})
		l.Take(token("ann"), "x", Call)
		l.Take(token("bob"), "x", Call)
		unlogged := func(name string) int { return l.Take(token(name), "x", Call).Unlogged }
		if n := unlogged("ann"); n != 1 {
			t.Errorf("the first refusal: %d", n)
		}
		for range 99 {
			if n := unlogged("ann"); n != 0 {
				t.Fatalf("logged again: %d", n)
			}
		}
		if n := unlogged("bob"); n != 1 {
			t.Errorf("the first refusal of another token: %d", n)
		}
		time.Sleep(logInterval)
		if n := unlogged("ann"); n != 100 {
			t.Errorf("%d refusals after a minute", n)
		}
	})
}

func TestTakeAllocations(t *testing.T) {
	l := new(RateLimiter)
	ann := token("ann").WithProfile("p").WithProfile("q")
	take := func() { l.Take(ann, "x", Call) }
	if n := testing.AllocsPerRun(1000, take); n != 0 {
		t.Errorf("%v allocations without limits", n)
	}
	l.SetTokens(map[string]config.Rate{"token:ann": rateOf("1000000/s", 0)})
	l.SetProfiles(map[string]config.Rate{"p": rateOf("1000000/s", 0), "q": rateOf("1000000/s", 0)})
	l.SetBackends(map[string]config.Rate{"x": rateOf("1000000/s", 0)})
	if n := testing.AllocsPerRun(1000, take); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkTake(b *testing.B) {
	ann := token("ann").WithProfile("p")
	fast := rateOf("1000000/s", 0)
	slow := rateOf("1/h", 1)
	for _, c := range []struct {
		name                    string
		tokens, profiles, backs config.Rate
	}{
		{"no limits", config.Rate{}, config.Rate{}, config.Rate{}},
		{"token", fast, config.Rate{}, config.Rate{}},
		{"all", fast, fast, fast},
		{"refused", slow, fast, fast},
	} {
		l := new(RateLimiter)
		l.SetTokens(map[string]config.Rate{"token:ann": c.tokens})
		l.SetProfiles(map[string]config.Rate{"p": c.profiles})
		l.SetBackends(map[string]config.Rate{"x": c.backs})
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				l.Take(ann, "x", Call)
			}
		})
		b.Run(c.name+" parallel", func(b *testing.B) {
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					l.Take(ann, "x", Call)
				}
			})
		})
	}
}
