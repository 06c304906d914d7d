package supervise

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestSupervisor sends events and their times to a Supervisor, and checks the Supervisor's
// decisions after each event. The random number is 0 unless given.
func TestSupervisor(t *testing.T) {
	for name, script := range map[string]string{
		"a start": `
			0s      new          stopped     queue
			0s      start        starting    queue
			1s      up           ready       send
			1h      stop         stopped     reject it is not running: stop`,
		"no demand for a while": `
			0s      new          stopped     queue
			0s      start        starting    queue
			1s      up           ready       send
			1h      idle         stopped     queue
			2h      start        starting    queue`,
		"the end of a stable connection queues calls, and is retried after the first pause": `
			0s      start        starting    queue
			0s      up           ready       send
			30s     lost         backing-off queue
			30s     failed       backing-off queue  next 30.2s
			30.1s   look         backing-off queue  next 30.2s
			30.2s   start        starting    queue
			31s     up           ready       send   down 1s`,
		"if the retry fails, calls are rejected": `
			0s      start        starting    queue
			0s      up           ready       send
			1m      lost         backing-off queue
			1m      failed       backing-off queue  next 1m0.2s
			1m0.2s  start        starting    queue
			1m1s    failed       backing-off reject next 1m1.2s  it is not running: failed; next try in 1s
			1m1.2s  look         backing-off queue
			1m1.2s  start        starting    queue
			1m2s    failed       backing-off reject next 1m2.4s
			1m2.4s  start        starting    queue
			1m3s    up           ready       send   down 3s`,
		"starts that fail": `
			0s      start        starting    queue
			0s      failed       backing-off reject next 200ms   it is not running: failed; next try in 1s
			1s      start        starting    queue
			1s      failed       backing-off reject next 1.4s
			2s      start        starting    queue
			2s      failed       backing-off reject next 2.8s
			3s      start        starting    queue
			3s      failed       backing-off reject next 4.6s    it is not running: failed; next try in 2s
			5s      start        starting    queue
			5s      failed       open        reject next 35s     it is not running: failed; next try in 30s
			5.5s    look         open        reject next 35s     it is not running: failed; next try in 30s
			34s     look         open        reject next 35s     it is not running: failed; next try in 1s
			35s     look         open        queue
			35s     start        starting    queue
			36s     failed       open        reject next 1m36s
			2m      start        starting    queue
			2m      failed       open        reject next 4m0s
			4m      start        starting    queue
			4m      failed       open        reject next 8m0s
			8m      start        starting    queue
			8m      failed       open        reject next 13m0s
			13m     start        starting    queue
			13m     failed       open        reject next 18m0s
			18m     start        starting    queue
			18m     up           ready       send   down 18m0s`,
		"a crash loop counts as failures in a row, and opens the breaker": `
			0s      start        starting    queue
			0s      up           ready       send
			1s      lost         backing-off queue
			1s      failed       backing-off queue  next 1.2s
			2s      start        starting    queue
			2s      up           ready       send
			31.9s   lost         backing-off queue
			31.9s   failed       backing-off queue  next 32.3s
			33s     start        starting    queue
			33s     up           ready       send
			34s     lost         backing-off queue
			34s     failed       backing-off queue  next 34.8s
			35s     start        starting    queue
			35s     up           ready       send
			36s     failed       backing-off queue  next 37.6s
			38s     start        starting    queue
			38s     up           ready       send
			39s     lost         backing-off queue
			39s     failed       open        reject next 1m9s    it is not running: failed; next try in 30s
			1m9s    start        starting    queue
			1m9s    up           ready       send
			1m10s   lost         backing-off queue
			1m10s   failed       open        reject next 2m10s
			2m10s   start        starting    queue
			2m10s   up           ready       send
			2m40s   lost         backing-off queue
			2m40s   failed       backing-off queue  next 2m40.2s
			2m41s   start        starting    queue
			2m41s   failed       backing-off reject next 2m41.2s`,
		"an open breaker stays open until the connection is stable": `
			0s      start        starting    queue
			0s      failed       backing-off reject
			0s      start        starting    queue
			0s      failed       backing-off reject
			0s      start        starting    queue
			0s      failed       backing-off reject
			0s      start        starting    queue
			0s      failed       backing-off reject
			0s      start        starting    queue
			0s      failed       open        reject next 30s
			30s     start        starting    queue
			30s     up           ready       send
			31s     lost         backing-off queue
			31s     failed       open        reject next 1m31s`,
		"a failure is reported twice: the pause begins when nothing is left": `
			0s      start        starting    queue
			1s      failed       backing-off reject next 1.2s
			2.5s    failed       backing-off reject next 2.7s
			2.7s    start        starting    queue
			3s      failed       backing-off reject next 3.4s`,
		"jitter is up to a quarter": `
			0s      start        starting    queue
			0s      failed+0.5   backing-off reject next 225ms
			1s      start        starting    queue
			1s      failed+1     backing-off reject next 1.5s`,
		"issues": `
			0s      start        starting    queue
			0s      up           ready       send
			1s      lists        degraded    send   because lists
			2s      ping         degraded    send   because lists
			3s      lists-ok     degraded    send   because ping
			4s      ping-ok      ready       send
			5s      lists        degraded    send
			6s      lost         backing-off queue
			6s      failed       backing-off queue  because failed
			7s      start        starting    queue  because failed
			8s      up           ready       send`,
		"the backoff is reset": `
			0s      start        starting    queue
			0s      failed       backing-off reject next 200ms
			1s      reset        backing-off queue  next 200ms
			1s      start        starting    queue
			1s      failed       backing-off reject next 1.2s
			2s      start        starting    queue
			2s      failed       backing-off reject next 2.4s
			3s      start        starting    queue
			3s      failed       backing-off reject next 3.8s
			4s      start        starting    queue
			4s      failed       backing-off reject next 5.6s
			6s      start        starting    queue
			6s      failed       open        reject next 36s
			7s      reset        backing-off queue  next 7.2s
			7s      reset-now    backing-off queue  next 7s
			7s      start        starting    queue
			7s      reset        starting    queue
			7s      up           ready       send   down 7s
			8s      reset        ready       send`,
		"blocked by others": `
			0s      new          stopped     queue
			0s      block        open        reject next 10s     it is not running: block; next try in 10s
			10s     look         open        queue
			10s     start        starting    queue
			11s     failed       backing-off reject next 11.2s`,
		"an idle stop is not a failure, and resets earlier failures": `
			0s      start        starting    queue
			0s      failed       backing-off reject next 200ms
			1s      start        starting    queue
			1s      up           ready       send
			2s      idle         stopped     queue
			3s      start        starting    queue
			3s      failed       backing-off reject next 3.2s`,
	} {
		t.Run(name, func(t *testing.T) { runScript(t, script) })
	}
}

func runScript(t *testing.T, script string) {
	var s Supervisor
	epoch := time.Unix(1000, 0)
	for line := range strings.Lines(strings.TrimSpace(script)) {
		words := strings.Fields(line)
		at, err := time.ParseDuration(words[0])
		if err != nil {
			t.Fatal(err)
		}
		now := epoch.Add(at)
		event, number, _ := strings.Cut(words[1], "+")
		random := 0.0
		fmt.Sscan(number, &random)
		down := time.Duration(0)
		switch event {
		case "new", "look":
		case "start":
			s.Start(now)
		case "up":
			down = s.Up(now)
		case "lost":
			s.Disconnected(now, errors.New("lost"))
		case "failed":
			s.Failed(now, errors.New("failed"), random)
		case "stop":
			s.Stop(now, errors.New("stop"))
		case "idle":
			s.Stop(now, nil)
		case "reset":
			s.ResetBackoff(now, FirstPause)
		case "reset-now":
			s.ResetBackoff(now, 0)
		case "block":
			s.BlockUntil(now, errors.New("block"), now.Add(10*time.Second))
		case "lists":
			s.SetIssue(now, IssueLists, errors.New("lists"))
		case "lists-ok":
			s.SetIssue(now, IssueLists, nil)
		case "ping":
			s.SetIssue(now, IssueNoPong, errors.New("ping"))
		case "ping-ok":
			s.SetIssue(now, IssueNoPong, nil)
		default:
			t.Fatalf("no event: %s", event)
		}
		c := s.Disposition(now)
		got := fmt.Sprintf("%s %s", strings.ReplaceAll(string(s.State()), " ", "-"),
			[]string{"send", "queue", "reject"}[c])
		for _, word := range words[4:] {
			switch {
			case word == "next" && !strings.Contains(got, " next "):
				got += fmt.Sprintf(" next %v", s.RetryAt().Sub(epoch))
			case word == "because":
				got += fmt.Sprintf(" because %v", s.Problem())
			case word == "down":
				got += fmt.Sprintf(" down %v", down)
			case word == "it":
				got += " " + s.RejectError(now).Error()
			}
		}
		want := strings.Join(words[2:], " ")
		if got != want {
			t.Fatalf("after %s %s:\n got %s\nwant %s", words[0], words[1], got, want)
		}
	}
}

func TestBreakerPauses(t *testing.T) {
	want := []string{"200ms", "200ms", "400ms", "800ms", "1.6s", "30s", "1m0s", "2m0s", "4m0s",
		"5m0s", "5m0s"}
	for failures, pause := range want {
		if got := backoffAfter(failures).String(); got != pause {
			t.Errorf("after %d failures: %s, want %s", failures, got, pause)
		}
	}
	if got := backoffAfter(1 << 40); got != lastOpenPause {
		t.Errorf("after very many: %v", got)
	}
}

// A SessionBreaker allows every session a start, until the starts of five different sessions in a
// row have failed.
func TestSessionBreaker(t *testing.T) {
	var c SessionBreaker
	now := time.Unix(1000, 0)
	no := errors.New("no")
	may := func(want string) {
		t.Helper()
		got := "yes"
		if next, reason := c.AllowStart(now, 0); reason != nil {
			got = fmt.Sprintf("%v in %v", reason, next.Sub(now))
		}
		if got != want {
			t.Errorf("may start: %s, want %s", got, want)
		}
	}
	for range 20 { // the failures of one session count once
		may("yes")
		c.Failed(now, "one", no, 0)
	}
	for _, session := range []string{"two", "three", "four"} {
		c.Failed(now, session, no, 0)
		may("yes")
	}
	c.Up() // a successful start resets the failures
	for i := range BreakerThreshold {
		may("yes")
		c.Failed(now, fmt.Sprint(i), no, 0)
	}
	may("no in 30s")
	now = now.Add(30 * time.Second)
	may("yes") // one session may start its connection
	may("no in 30s")
	c.Failed(now, "0", no, 0)
	may("no in 1m0s")
	now = now.Add(time.Minute)
	may("yes")
	c.Up()
	may("yes")
	may("yes")

	c.SharedEnded(Breaker{failures: BreakerThreshold, reason: errors.New("shared"),
		nextTry: now.Add(20 * time.Second)})
	may("shared in 20s")
	now = now.Add(20 * time.Second)
	may("shared in 1s") // a try is in progress
	c.SharedUp()
	may("yes")
	c.SharedEnded(Breaker{failures: BreakerThreshold - 1, reason: errors.New("shared")})
	may("yes") // the breaker of the shared connection is not open
}

// The history says since when the state is what it is, how often the connection was started again
// after a failure, and the last error, also when it is over.
func TestHistory(t *testing.T) {
	start := time.Now()
	after := func(d time.Duration) time.Time { return start.Add(d * time.Second) }
	changes := 0
	s := New(start, func() { changes++ })
	want := func(since time.Time, restarts int, lastError string, at time.Time, changed int) {
		t.Helper()
		h := s.History()
		text := ""
		if h.LastError != nil {
			text = h.LastError.Error()
		}
		if h.Since != since || h.Restarts != restarts || text != lastError || h.LastErrorAt != at ||
			changes != changed {
			t.Errorf("%s: %+v after %d changes", s.State(), h, changes)
		}
	}
	never := time.Time{}
	want(start, 0, "", never, 0)
	s.Start(after(1))
	want(after(1), 0, "", never, 1)
	s.Failed(after(2), errors.New("no"), 0)
	want(after(2), 0, "no", after(2), 2)
	s.Failed(after(3), errors.New("exit status 1"), 0) // the same failure
	want(after(2), 0, "exit status 1", after(2), 2)
	s.Start(after(4))
	want(after(4), 1, "exit status 1", after(2), 3)
	s.Up(after(5))
	want(after(5), 1, "exit status 1", after(2), 4)
	s.SetIssue(after(6), IssueLists, errors.New("lists"))
	want(after(6), 1, "lists", after(6), 5)
	s.SetIssue(after(7), IssueNoPong, errors.New("ping")) // still degraded
	want(after(6), 1, "ping", after(7), 5)
	s.SetIssue(after(8), IssueLists, nil)
	s.SetIssue(after(8), IssueNoPong, nil)
	want(after(8), 1, "ping", after(7), 6)
	s.Stop(after(9), nil) // idle: the next start is no restart
	s.Start(after(10))
	s.Up(after(11))
	want(after(11), 1, "ping", after(7), 9)
	s.Disconnected(after(12), errors.New("closed"))
	want(after(12), 1, "ping", after(7), 10)
	s.AwaitLogin(after(13), errors.New("login"))
	want(after(13), 1, "login", after(13), 11)
	s.Start(after(14)) // no restart: it waited for a login
	want(after(14), 1, "login", after(13), 12)
}
