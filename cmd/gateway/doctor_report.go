package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"mcpgateway/internal/config"
	"mcpgateway/internal/doctor"
)

const (
	reportLogLines = 50 // of each running gateway
	maxReportLine  = 1000
)

// report returns the report for bug reports. Values of variables, secrets, user names in URLs and
// the path of the home directory are replaced.
func (r *doctorRun) report(ctx context.Context) string {
	r.maskVariables()
	var b strings.Builder
	line := func(format string, args ...any) {
		text := printable(r.mask.String(fmt.Sprintf(format, args...)))
		home, _ := os.UserHomeDir()
		fmt.Fprintln(&b, truncate(doctor.Scrub(text, home), maxReportLine))
	}
	line("%s", ownBuild())
	line("time: %s", time.Now().UTC().Format(time.RFC3339))
	b.WriteString("\nFindings\n\n")
	for text := range strings.Lines(findingsText(r.found, true)) {
		line("%s", strings.TrimSuffix(text, "\n"))
	}
	b.WriteString("\nConfiguration\n\n")
	var lines []string
	var err error
	if r.loaded != nil && r.data != nil {
		lines, err = config.Describe(r.file, r.data)
	}
	if r.loaded == nil || err != nil {
		lines = []string{"it is invalid, and not shown"}
	}
	for _, text := range lines[:min(len(lines), maxDescribed)] {
		line("%s", withoutArguments(oneLine(text)))
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	for _, g := range r.running {
		logs, err := g.Logs(ctx, url.Values{"limit": {fmt.Sprint(reportLogLines)}})
		if err != nil {
			continue
		}
		b.WriteString("\nLog of a running gateway\n\n")
		for _, l := range logs {
			line("%s %s %s %s %s", l.Time.UTC().Format(time.RFC3339), l.Level, orDash(l.Backend),
				l.Message, l.Attrs)
		}
	}
	return b.String()
}

// withoutArguments removes the arguments of the commands of references, which may be secrets, from
// a line of config.Describe.
func withoutArguments(text string) string {
	const output = " gets the output of the command: "
	if before, command, found := strings.Cut(text, output); found {
		program, _, _ := strings.Cut(command, " ")
		return before + output + program + " …"
	}
	const reference = "${command:"
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, reference)
		b.WriteString(before)
		if !found {
			return b.String()
		}
		end := strings.IndexAny(rest, " }")
		if end < 0 {
			return b.String() + reference + "…"
		}
		b.WriteString(reference + rest[:end] + " …}")
		_, text, _ = strings.Cut(rest, "}")
	}
}

// maskVariables adds the values of the variables in the configuration to the mask, except the home
// directory, which is shown as ~.
func (r *doctorRun) maskVariables() {
	home, _ := os.UserHomeDir()
	for _, ref := range r.references {
		if value := os.Getenv(ref.Variable); ref.Variable != "" && value != home {
			r.mask.Add(value)
		}
	}
	for _, kv := range os.Environ() {
		name, value, _ := strings.Cut(kv, "=")
		if doctor.IsSecretVariable(name, value) {
			r.mask.Add(value)
		}
	}
}
