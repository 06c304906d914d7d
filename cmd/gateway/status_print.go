package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/term"

	"mcpgateway/internal/adminapi"
)

// A screen says how output looks best.
type screen struct {
	columns int // 0 = unlimited
	color   bool
}

// screenOf returns the screen that w is, or one with $COLUMNS if w is none.
func screenOf(w io.Writer) screen {
	var s screen
	s.columns, _ = strconv.Atoi(os.Getenv("COLUMNS"))
	f, ok := w.(*os.File)
	if !ok || !isTerminal(f) {
		return s
	}
	s.color = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
		s.columns = width
	}
	return s
}

// wideColumns is the width from which on each backend has a single line with everything.
const wideColumns = 110

func (s screen) isWide() bool { return s.columns == 0 || s.columns >= wideColumns }

// printReports prints the reports, with texts of backends on one line and without control
// characters.
func printReports(w io.Writer, reports []gatewayReport, now time.Time) error {
	s := screenOf(w)
	var b strings.Builder
	for i, r := range reports {
		if i > 0 {
			b.WriteByte('\n')
		}
		if r.Error != "" {
			fmt.Fprintf(&b, "gateway %s: %s\n", printable(r.ID), oneLine(r.Error))
			continue
		}
		s.printGateway(&b, r.GatewayStatus, now)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (s screen) printGateway(b *strings.Builder, g *adminapi.GatewayStatus, now time.Time) {
	fmt.Fprintf(b, "gateway %s, process %d, version %s, up %s\n", printable(g.Gateway.ID),
		g.Gateway.PID, printable(g.Gateway.Version), age(now, g.Gateway.Started))
	line := func(name, text string) {
		fmt.Fprintf(b, "  %-14s %s\n", name, oneLine(text))
	}
	line("serves", whom(g))
	if g.Gateway.Admin != "" {
		line("admin", g.Gateway.Admin)
	}
	printConfiguration(line, &g.Configuration)
	printAudit(line, &g.Audit, now)
	if len(g.Backends) > 0 {
		b.WriteByte('\n')
		s.printBackends(b, g.Backends, now)
	}
	if len(g.Sessions) > 0 {
		b.WriteByte('\n')
		s.printSessions(b, g.Sessions, now)
	}
}

func printConfiguration(line func(name, text string), c *adminapi.ConfigurationState) {
	if c.File == "" {
		line("configuration", "no file: the embedded demo backend")
	} else {
		line("configuration", c.File)
	}
	if c.Problem != "" {
		first, _, more := strings.Cut(c.Problem, "\n")
		if more {
			first += " (gateway check shows all problems)"
		}
		line("", "the file is not in force: "+first)
	}
	if len(c.NeedRestart) > 0 {
		line("", "changes of "+strings.Join(c.NeedRestart, ", ")+
			" apply when the gateway is restarted")
	}
	if c.Differs {
		line("", "the file has changed: gateway reload applies it")
	}
}

func printAudit(line func(name, text string), a *adminapi.AuditStatus, now time.Time) {
	if a.File != nil {
		text := fmt.Sprintf("%s, %s", a.File.Path, formatSize(int(a.File.Size)))
		if a.File.Former > 0 {
			text += fmt.Sprintf(", and %d former files, %s", a.File.Former,
				formatSize(int(a.File.FormerSize)))
		}
		line("audit", text)
		if p := a.File.Problem; p != nil {
			line("", fmt.Sprintf("for %s: %s", age(now, p.Time), p.Text))
		}
	}
	if a.Lost > 0 {
		line("", fmt.Sprintf("%d audit records lost", a.Lost))
	}
}

func (s screen) printBackends(b *strings.Builder, all []adminapi.BackendStatus, now time.Time) {
	t := textTable{screen: s, shrink: 0}
	if s.isWide() {
		t.head("BACKEND", "STATE", "SINCE", ">RESTARTS", ">TOOLS", ">CALLS", ">ERRORS",
			">ACTIVE", ">P50", ">P99", "LAST ERROR")
	} else {
		t.head("BACKEND", "STATE", "SINCE", ">TOOLS", ">CALLS", ">ERRORS", ">ACTIVE", ">P50",
			">P99")
	}
	for _, one := range all {
		problem := lastProblem(&one, now)
		c := &one.Calls
		cells := []string{oneLine(one.Name), oneLine(one.State), age(now, one.Since)}
		if s.isWide() {
			cells = append(cells, strconv.Itoa(one.Restarts))
		} else if one.Restarts > 0 {
			problem = strings.TrimSuffix(
				fmt.Sprintf("%d restarts; %s", one.Restarts, problem), "; ")
		}
		cells = append(cells, strconv.Itoa(one.Lists.Tools), strconv.FormatUint(c.Calls, 10),
			strconv.FormatUint(c.Errors, 10), strconv.Itoa(c.InFlight), latency(c.P50),
			latency(c.P99))
		if s.isWide() {
			cells = append(cells, problem)
			problem = ""
		}
		t.row(stateColor(&one), problem, cells...)
	}
	t.print(b)
}

// lastProblem returns the reason for the state of a backend, or else its last failure, or else that
// of a call.
func lastProblem(b *adminapi.BackendStatus, now time.Time) string {
	switch {
	case b.Reason != "":
		text := oneLine(b.Reason)
		if !b.NextTry.IsZero() {
			text += fmt.Sprintf(" (next try in %s)", duration(max(b.NextTry.Sub(now), 0)))
		}
		return text
	case b.LastError != nil:
		return fmt.Sprintf("%s ago: %s", age(now, b.LastError.Time), oneLine(b.LastError.Text))
	case b.Calls.LastError != nil:
		return fmt.Sprintf("%s ago: %s", age(now, b.Calls.LastError.Time),
			oneLine(b.Calls.LastError.Text))
	}
	return ""
}

func (s screen) printSessions(b *strings.Builder, all []adminapi.SessionStatus, now time.Time) {
	t := textTable{screen: s, shrink: 1}
	t.head("SESSION", "CLIENT", "PRINCIPAL", "SINCE", ">ACTIVE")
	for _, one := range all {
		id := printable(one.ID)
		if !s.isWide() {
			id = truncate(id, 9)
		}
		who := orDash(oneLine(one.Principal))
		if len(one.Profiles) > 0 {
			who += " (profile " + oneLine(strings.Join(one.Profiles, ", ")) + ")"
		}
		t.row("", "", id, orDash(oneLine(one.Client)), who, age(now, one.Started),
			strconv.Itoa(one.InFlight))
	}
	t.print(b)
}

// age returns the time since a moment, "-" if the moment is not known.
func age(now, since time.Time) string {
	if since.IsZero() {
		return "-"
	}
	return duration(max(now.Sub(since), 0))
}

// duration formats a duration with at most two units.
func duration(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 10*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours())/24)
}

// latency formats milliseconds, "-" for nil.
func latency(ms *float64) string {
	switch {
	case ms == nil:
		return "-"
	case *ms < 10:
		return fmt.Sprintf("%.1fms", *ms)
	case *ms < 1000:
		return fmt.Sprintf("%.0fms", *ms)
	case *ms < 100_000:
		return fmt.Sprintf("%.1fs", *ms/1000)
	}
	return fmt.Sprintf("%.0fs", *ms/1000)
}

// The colors of a terminal.
const (
	green  = "\033[32m"
	yellow = "\033[33m"
	red    = "\033[31m"
)

func stateColor(b *adminapi.BackendStatus) string {
	switch {
	case !b.Healthy:
		return red
	case b.State == "ready":
		return green
	}
	return yellow
}
