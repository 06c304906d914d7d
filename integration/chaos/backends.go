//go:build unix

package main

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"mcpgateway/internal/atomicfile"
	"mcpgateway/internal/mcptest/faults"
)

// A role determines the faults that a backend may have.
type role int

const (
	healthy     role = iota // no faults
	demo                    // no faults: the embedded demo server, which has tools of its own
	misbehaving             // faults that do not end the process; sometimes killed from outside
	crashing                // ends its process in every way
	broken                  // never starts correctly: tools may be missing, and calls may fail
)

// A backend is one server behind the gateway.
type backend struct {
	name     string
	role     role
	http     bool
	modern   bool
	script   faults.Script
	httpStub *faults.HTTPStub // nil if http is false
	url      string

	pid atomic.Int64 // pid of the process that sent the last response
	// time of the kill of the previous process, in nanoseconds; 0 = a later process has responded
	killedAt      atomic.Int64
	kills         atomic.Int32 // number of kills since the last change of its configuration
	configVersion int          // number of changes of its configuration; used by one goroutine
}

func (b *backend) isExempt() bool { return b.role == healthy || b.role == demo }

// allBackends returns the 20 backends.
func allBackends() []*backend {
	var all []*backend
	add := func(role role, s faults.Script, web bool) {
		all = append(all, &backend{name: s.Name, role: role, http: web,
			modern: s.Generation == "modern", script: s})
	}
	for i, s := range []faults.Script{
		0: {}, 1: {ExtraTools: 20, PageSize: 7}, 2: {}, 3: {Generation: "modern"}, // healthy
		4: {}, 5: {}, 6: {Generation: "modern"}, 7: {IgnoreStop: true}, // misbehaving
		8: {}, 9: {}, // crashing
		10: {PageLoop: "circle", PageSize: 2}, // broken
		11: {On: map[string][]faults.Fault{"start": {{Kind: "stderr", Bytes: 2000},
			{Kind: "die", Code: 3}}}},
	} {
		s.Name = "s" + strconv.Itoa(i)
		add([]role{healthy, healthy, healthy, healthy, misbehaving, misbehaving, misbehaving,
			misbehaving, crashing, crashing, broken, broken}[i], s, false)
	}
	for i, s := range []faults.Script{
		0: {}, 1: {Generation: "modern"}, // healthy
		2: {}, 3: {AlwaysStream: true}, 4: {NoGet: true}, 5: {Generation: "modern"}, // misbehaving
	} {
		s.Name = "h" + strconv.Itoa(i)
		add([]role{healthy, healthy, misbehaving, misbehaving, misbehaving, misbehaving}[i], s,
			true)
	}
	add(demo, faults.Script{Name: "e0"}, false)
	add(demo, faults.Script{Name: "e1"}, false)
	return all
}

// stdioBackends returns the backends of a gateway on stdio, which serves a single client.
func stdioBackends(all []*backend) (some []*backend) {
	for _, b := range all {
		switch b.name {
		case "s0", "s3", "s4", "h0", "h2", "e0":
			some = append(some, b)
		}
	}
	return some
}

// maxInFlight is the maximum number of calls in flight of a session.
const maxInFlight = 30

// atLowPriority returns the configuration keys of a backend that runs program with a lower priority
// than all other processes: with SCHED_IDLE if chrt can set it, as on most Linux systems, otherwise
// at nice 10. A program at nice 10 keeps a processor for its whole time slice of 3 ms, even when a
// program of normal priority becomes runnable.
func atLowPriority(program string) string {
	if hasIdlePriority() {
		return fmt.Sprintf(`command: chrt, args: [-i, "0", %q]`, program)
	}
	return fmt.Sprintf(`command: nice, args: [-n, "10", %q]`, program)
}

var hasIdlePriority = sync.OnceValue(func() bool {
	return exec.Command("chrt", "-i", "0", "true").Run() == nil
})

// configuration returns the text of a configuration file.
func configuration(backends []*backend, dir, name, stub, mark string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "state: %q\nlog: {level: info}\naudit: {file: %q}\n", dir+"/state-"+name,
		dir+"/audit-"+name+".jsonl")
	fmt.Fprintf(&b,
		"catalog: {prefix: always, wait: 3s}\nlimits: {in_flight: %d, session_idle: 2s, events: 64KiB}\n", maxInFlight)
	b.WriteString("defaults: {start_timeout: 5s, call_timeout: 1s}\nbackends:\n")
	for _, x := range backends {
		timeouts := ""
		if x.isExempt() {
			// the machine may stall for one or two seconds
			timeouts = ", call_timeout: 30s, start_timeout: 60s"
		}
		switch {
		case x.role == demo:
			fmt.Fprintf(&b, "  - {name: %s, embedded: demo%s}\n", x.name, timeouts)
		case x.http:
			fmt.Fprintf(&b, "  - {name: %s, url: %q, headers: {X-Generation: \"%d\"}%s}\n", x.name,
				x.url, x.configVersion, timeouts)
		default:
			// Faulty programs are restarted frequently. Their processor time must not appear as
			// latency of the gateway.
			start := fmt.Sprintf("command: %q", stub)
			if !x.isExempt() {
				start = atLowPriority(stub)
			}
			fmt.Fprintf(&b, "  - {name: %s, %s, env: {%s: %q, %s: %q, GENERATION: \"%d\"}%s}\n",
				x.name, start, faults.ScriptEnv, x.script.String(), markEnv, mark, x.configVersion,
				timeouts)
		}
	}
	return b.String()
}

func writeConfig(path, text string) error {
	return atomicfile.Write(path, []byte(text), atomicfile.Options{})
}
