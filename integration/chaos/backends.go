//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"mcpgateway/internal/mcptest/faults"
)

// A role is what may happen to a backend.
type role int

const (
	healthy role = iota // nothing ever
	demo                // likewise, but it is the embedded one, with tools of its own
	liar                // whatever does not end it; now and then it is killed from outside
	mortal              // it dies whenever it can
	broken              // it never was well: its tools may be missing, and calls to it may fail at any time
)

// A backend is one of the gateway's.
type backend struct {
	name   string
	role   role
	http   bool
	modern bool
	script faults.Script
	twin   *faults.HTTPStub // if it is one
	url    string

	pid        atomic.Int64 // of the process that has answered last
	killed     atomic.Int64 // when the one before was, in nanoseconds; 0 = it is back
	kills      atomic.Int32 // since its configuration was changed last
	generation int          // of its configuration; what writes that is one goroutine
}

func (b *backend) spared() bool { return b.role == healthy || b.role == demo }

// cast are the 20 backends.
func cast() []*backend {
	var all []*backend
	add := func(role role, s faults.Script, web bool) {
		all = append(all, &backend{name: s.Name, role: role, http: web, modern: s.Generation == "modern", script: s})
	}
	for i, s := range []faults.Script{
		0: {}, 1: {ExtraTools: 20, PageSize: 7}, 2: {}, 3: {Generation: "modern"}, // healthy
		4: {}, 5: {}, 6: {Generation: "modern"}, 7: {IgnoreStop: true}, // liars
		8: {}, 9: {}, // mortal
		10: {PageLoop: "circle", PageSize: 2}, // broken
		11: {On: map[string][]faults.Fault{"start": {{Kind: "stderr", Bytes: 2000}, {Kind: "die", Code: 3}}}},
	} {
		s.Name = "s" + strconv.Itoa(i)
		add([]role{healthy, healthy, healthy, healthy, liar, liar, liar, liar, mortal, mortal, broken, broken}[i], s, false)
	}
	for i, s := range []faults.Script{
		0: {}, 1: {Generation: "modern"}, // healthy
		2: {}, 3: {AlwaysStream: true}, 4: {NoGet: true}, 5: {Generation: "modern"}, // liars
	} {
		s.Name = "h" + strconv.Itoa(i)
		add([]role{healthy, healthy, liar, liar, liar, liar}[i], s, true)
	}
	add(demo, faults.Script{Name: "e0"}, false)
	add(demo, faults.Script{Name: "e1"}, false)
	return all
}

// small are those that a gateway on stdio has, which a client has to itself.
func small(all []*backend) (some []*backend) {
	for _, b := range all {
		switch b.name {
		case "s0", "s3", "s4", "h0", "h2", "e0":
			some = append(some, b)
		}
	}
	return some
}

// inFlight is how many calls a session may have on their way.
const inFlight = 30

// atLowPriority returns the keys of a backend that starts program with a priority below that of
// all others: with SCHED_IDLE if the machine has chrt, as Linux distributions do, else at nice 10.
// At nice 10 a program keeps a processor for its whole time slice of 3 ms when a program of normal
// priority becomes runnable.
func atLowPriority(program string) string {
	if hasIdlePriority() {
		return fmt.Sprintf(`command: chrt, args: [-i, "0", %q]`, program)
	}
	return fmt.Sprintf(`command: nice, args: [-n, "10", %q]`, program)
}

var hasIdlePriority = sync.OnceValue(func() bool { return exec.Command("chrt", "-i", "0", "true").Run() == nil })

// configuration is the text of a gateway's file.
func configuration(backends []*backend, dir, name, stub, mark string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "state: %q\nlog: {level: info}\naudit: {file: %q}\n", dir+"/state-"+name, dir+"/audit-"+name+".jsonl")
	fmt.Fprintf(&b, "catalog: {prefix: always, wait: 3s}\nlimits: {in_flight: %d, session_idle: 2s, events: 64KiB}\n", inFlight)
	b.WriteString("defaults: {start_timeout: 5s, call_timeout: 1s}\nbackends:\n")
	for _, x := range backends {
		patience := ""
		if x.spared() {
			patience = ", call_timeout: 30s, start_timeout: 60s" // though the machine stands still for a second or two
		}
		switch {
		case x.role == demo:
			fmt.Fprintf(&b, "  - {name: %s, embedded: demo%s}\n", x.name, patience)
		case x.http:
			fmt.Fprintf(&b, "  - {name: %s, url: %q, headers: {X-Generation: \"%d\"}%s}\n", x.name, x.url, x.generation, patience)
		default:
			// What faulty programs burn, for they start all the time, is between them and the machine: it is not to be
			// taken for what the gateway makes others suffer.
			start := fmt.Sprintf("command: %q", stub)
			if !x.spared() {
				start = atLowPriority(stub)
			}
			fmt.Fprintf(&b, "  - {name: %s, %s, env: {%s: %q, %s: %q, GENERATION: \"%d\"}%s}\n",
				x.name, start, faults.ScriptEnv, x.script.String(), markEnv, mark, x.generation, patience)
		}
	}
	return b.String()
}

func writeConfig(path, text string) error {
	next := path + ".next"
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(next, path)
}
