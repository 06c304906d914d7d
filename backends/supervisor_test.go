package backends

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestSupervisor sends events and their times to a supervisor, and checks its decisions after
// each. The random number is 0 unless given.
func TestSupervisor(t *testing.T) {
	for name, script := range map[string]string{
		"a start": `
			0s      new          stopped     waits
			0s      start        starting    waits
			1s      up           ready       goes
			1h      stop         stopped     fails  it is not running: stop`,
		"it is not needed for a while": `
			0s      new          stopped     waits
			0s      start        starting    waits
			1s      up           ready       goes
			1h      sleep        stopped     waits
			2h      start        starting    waits`,
		"what was up for long is waited for, and comes back after the first pause": `
			0s      start        starting    waits
			0s      up           ready       goes
			30s     lost         backing-off waits
			30s     failed       backing-off waits  next 30.2s
			30.1s   look         backing-off waits  next 30.2s
			30.2s   start        starting    waits
			31s     up           ready       goes   down 1s`,
		"if it does not come back calls fail at once": `
			0s      start        starting    waits
			0s      up           ready       goes
			1m      lost         backing-off waits
			1m      failed       backing-off waits  next 1m0.2s
			1m0.2s  start        starting    waits
			1m1s    failed       backing-off fails  next 1m1.2s  it is not running: failed; next try in 1s
			1m1.2s  look         backing-off waits
			1m1.2s  start        starting    waits
			1m2s    failed       backing-off fails  next 1m2.4s
			1m2.4s  start        starting    waits
			1m3s    up           ready       goes   down 3s`,
		"starts that fail": `
			0s      start        starting    waits
			0s      failed       backing-off fails  next 200ms   it is not running: failed; next try in 1s
			1s      start        starting    waits
			1s      failed       backing-off fails  next 1.4s
			2s      start        starting    waits
			2s      failed       backing-off fails  next 2.8s
			3s      start        starting    waits
			3s      failed       backing-off fails  next 4.6s    it is not running: failed; next try in 2s
			5s      start        starting    waits
			5s      failed       open        fails  next 35s     it is not running: failed; next try in 30s
			5.5s    look         open        fails  next 35s     it is not running: failed; next try in 30s
			34s     look         open        fails  next 35s     it is not running: failed; next try in 1s
			35s     look         open        waits
			35s     start        starting    waits
			36s     failed       open        fails  next 1m36s
			2m      start        starting    waits
			2m      failed       open        fails  next 4m0s
			4m      start        starting    waits
			4m      failed       open        fails  next 8m0s
			8m      start        starting    waits
			8m      failed       open        fails  next 13m0s
			13m     start        starting    waits
			13m     failed       open        fails  next 18m0s
			18m     start        starting    waits
			18m     up           ready       goes   down 18m0s`,
		"a crash loop is a failure in a row, and ends in an open circuit": `
			0s      start        starting    waits
			0s      up           ready       goes
			1s      lost         backing-off waits
			1s      failed       backing-off waits  next 1.2s
			2s      start        starting    waits
			2s      up           ready       goes
			31.9s   lost         backing-off waits
			31.9s   failed       backing-off waits  next 32.3s
			33s     start        starting    waits
			33s     up           ready       goes
			34s     lost         backing-off waits
			34s     failed       backing-off waits  next 34.8s
			35s     start        starting    waits
			35s     up           ready       goes
			36s     failed       backing-off waits  next 37.6s
			38s     start        starting    waits
			38s     up           ready       goes
			39s     lost         backing-off waits
			39s     failed       open        fails  next 1m9s    it is not running: failed; next try in 30s
			1m9s    start        starting    waits
			1m9s    up           ready       goes
			1m10s   lost         backing-off waits
			1m10s   failed       open        fails  next 2m10s
			2m10s   start        starting    waits
			2m10s   up           ready       goes
			2m40s   lost         backing-off waits
			2m40s   failed       backing-off waits  next 2m40.2s
			2m41s   start        starting    waits
			2m41s   failed       backing-off fails  next 2m41.2s`,
		"a circuit that was opened stays so until it has settled": `
			0s      start        starting    waits
			0s      failed       backing-off fails
			0s      start        starting    waits
			0s      failed       backing-off fails
			0s      start        starting    waits
			0s      failed       backing-off fails
			0s      start        starting    waits
			0s      failed       backing-off fails
			0s      start        starting    waits
			0s      failed       open        fails  next 30s
			30s     start        starting    waits
			30s     up           ready       goes
			31s     lost         backing-off waits
			31s     failed       open        fails  next 1m31s`,
		"a failure is told twice: the pause begins when nothing is left": `
			0s      start        starting    waits
			1s      failed       backing-off fails  next 1.2s
			2.5s    failed       backing-off fails  next 2.7s
			2.7s    start        starting    waits
			3s      failed       backing-off fails  next 3.4s`,
		"jitter is up to a quarter": `
			0s      start        starting    waits
			0s      failed+0.5   backing-off fails  next 225ms
			1s      start        starting    waits
			1s      failed+1     backing-off fails  next 1.5s`,
		"ills": `
			0s      start        starting    waits
			0s      up           ready       goes
			1s      ill          degraded    goes   because ill
			2s      ping         degraded    goes   because ill
			3s      well         degraded    goes   because ping
			4s      pong         ready       goes
			5s      ill          degraded    goes
			6s      lost         backing-off waits
			6s      failed       backing-off waits  because failed
			7s      start        starting    waits  because failed
			8s      up           ready       goes`,
		"what has failed is pardoned": `
			0s      start        starting    waits
			0s      failed       backing-off fails  next 200ms
			1s      pardon       backing-off waits  next 200ms
			1s      start        starting    waits
			1s      failed       backing-off fails  next 1.2s
			2s      start        starting    waits
			2s      failed       backing-off fails  next 2.4s
			3s      start        starting    waits
			3s      failed       backing-off fails  next 3.8s
			4s      start        starting    waits
			4s      failed       backing-off fails  next 5.6s
			6s      start        starting    waits
			6s      failed       open        fails  next 36s
			7s      pardon       backing-off waits  next 7.2s
			7s      anew         backing-off waits  next 7s
			7s      start        starting    waits
			7s      pardon       starting    waits
			7s      up           ready       goes   down 7s
			8s      pardon       ready       goes`,
		"barred by others": `
			0s      new          stopped     waits
			0s      bar          open        fails  next 10s     it is not running: bar; next try in 10s
			10s     look         open        waits
			10s     start        starting    waits
			11s     failed       backing-off fails  next 11.2s`,
		"an orderly stop is no failure, and the failures before it are forgotten": `
			0s      start        starting    waits
			0s      failed       backing-off fails  next 200ms
			1s      start        starting    waits
			1s      up           ready       goes
			2s      sleep        stopped     waits
			3s      start        starting    waits
			3s      failed       backing-off fails  next 3.2s`,
	} {
		t.Run(name, func(t *testing.T) { runScript(t, script) })
	}
}

func runScript(t *testing.T, script string) {
	var s supervisor
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
			s.start()
		case "up":
			down = s.up(now)
		case "lost":
			s.disconnected(now, errors.New("lost"))
		case "failed":
			s.failed(now, errors.New("failed"), random)
		case "stop":
			s.stop(errors.New("stop"))
		case "sleep":
			s.stop(nil)
		case "pardon":
			s.resetBackoff(now, firstPause)
		case "anew":
			s.resetBackoff(now, 0)
		case "bar":
			s.blockUntil(errors.New("bar"), now.Add(10*time.Second))
		case "ill":
			s.issues[issueLists] = errors.New("ill")
		case "well":
			s.issues[issueLists] = nil
		case "ping":
			s.issues[issueNoPong] = errors.New("ping")
		case "pong":
			s.issues[issueNoPong] = nil
		default:
			t.Fatalf("no event: %s", event)
		}
		c := s.disposition(now)
		got := fmt.Sprintf("%s %s", strings.ReplaceAll(string(s.State()), " ", "-"),
			[]string{"goes", "waits", "fails"}[c])
		for _, word := range words[4:] {
			switch {
			case word == "next" && !strings.Contains(got, " next "):
				got += fmt.Sprintf(" next %v", s.retryAt().Sub(epoch))
			case word == "because":
				got += fmt.Sprintf(" because %v", s.problem())
			case word == "down":
				got += fmt.Sprintf(" down %v", down)
			case word == "it":
				got += " " + s.rejectError(now).Error()
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

// A sessionBreaker lets every session try, until the first tries of five in a row have failed.
func TestSessionBreaker(t *testing.T) {
	var c sessionBreaker
	now := time.Unix(1000, 0)
	no := errors.New("no")
	may := func(want string) {
		t.Helper()
		got := "yes"
		if next, reason := c.allowStart(now, 0); reason != nil {
			got = fmt.Sprintf("%v in %v", reason, next.Sub(now))
		}
		if got != want {
			t.Errorf("may start: %s, want %s", got, want)
		}
	}
	for range 20 { // the failures of one session count once
		may("yes")
		c.failed(now, "one", no, 0)
	}
	for _, session := range []string{"two", "three", "four"} {
		c.failed(now, session, no, 0)
		may("yes")
	}
	c.up() // none after all starts that failed
	for i := range breakerThreshold {
		may("yes")
		c.failed(now, fmt.Sprint(i), no, 0)
	}
	may("no in 30s")
	now = now.Add(30 * time.Second)
	may("yes") // one of them
	may("no in 30s")
	c.failed(now, "0", no, 0)
	may("no in 1m0s")
	now = now.Add(time.Minute)
	may("yes")
	c.up()
	may("yes")
	may("yes")

	c.sharedBreaker = &breaker{failures: breakerThreshold, reason: errors.New("shared"),
		nextTry: now.Add(20 * time.Second)}
	may("shared in 20s")
	now = now.Add(20 * time.Second)
	may("shared in 1s") // a try is in progress
	c.sharedBreaker = nil
	may("yes")
}
