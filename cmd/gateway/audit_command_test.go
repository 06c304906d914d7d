//go:build unix

package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"mcpgateway/internal/audit"
	"mcpgateway/internal/callid"
)

// auditFile writes an audit file with these records and returns its path.
func auditFile(t *testing.T, records ...audit.Record) string {
	t.Helper()
	var b bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	j := audit.NewLines(&b, audit.Options{Payloads: audit.All, Queue: 10_000})
	for _, r := range records {
		j.Write(r)
	}
	if err := j.Run(ctx); err != nil {
		t.Fatal(err)
	}
	return file(t, "audit.jsonl", b.String())
}

// auditCalls returns n calls, one each second. The last has ended a minute ago.
func auditCalls(n int) (all []audit.Record) {
	for i := range n {
		at := time.Now().Add(-time.Minute - time.Duration(n-1-i)*time.Second)
		all = append(all, audit.Record{
			Seq: uint64(i + 1), Time: at, Started: at.Add(-20 * time.Millisecond), Session: "s1",
			Client: "cursor/1.0", ID: "4", BackendID: "7", Tool: "docs__echo", Backend: "docs",
			BackendTool: "echo", Outcome: audit.OK, Queued: 5 * time.Millisecond,
			Dur: time.Duration(i+1) * 10 * time.Millisecond, BytesIn: 100, BytesOut: 2000,
		})
	}
	return all
}

// output runs a command line and returns its stdout and stderr.
func auditOutput(t *testing.T, code int, args string) (out, stderr string) {
	t.Helper()
	got, out, stderr := runPiped(t, nil, strings.Fields(args)...).output()
	if got != code {
		t.Errorf("gateway %s: exit code %d, want %d\n%s%s", args, got, code, out, stderr)
	}
	return out, stderr
}

func TestAuditPrintsATableOfTheLastRecords(t *testing.T) {
	t.Parallel()
	path := auditFile(t, auditCalls(120)...)
	out, stderr := auditOutput(t, exitOK, "audit "+path)
	rows := strings.Split(strings.TrimSpace(out), "\n")
	if len(rows) != 1+defaultLines || !strings.HasPrefix(rows[0], "TIME ") ||
		!strings.Contains(stderr, "only the last 50 records; -n 0 prints all of them") {
		t.Errorf("%d rows, %s", len(rows), stderr)
	}
	newest := time.Now().Add(-time.Minute).Format("2006-01-02 15:0")
	last := rows[len(rows)-1]
	for _, want := range []string{newest[:10], callid.Text(120), "cursor/1.0", "docs__echo", "ok",
		"1.21s"} { // 5 ms in the queue, and 1.2 s
		if !strings.Contains(last, want) {
			t.Errorf("no %q in %s", want, last)
		}
	}
	for n, want := range map[string]int{"0": 120, "3": 3, "120": 120, "500": 120} {
		out, stderr := auditOutput(t, exitOK, "audit -n "+n+" "+path)
		if got := strings.Count(out, "\n") - 1; got != want ||
			strings.Contains(stderr, "only") != (n == "3") {
			t.Errorf("-n %s: %d rows, %s", n, got, stderr)
		}
	}
}

// Each flag selects records.
func TestAuditFlags(t *testing.T) {
	t.Parallel()
	calls := auditCalls(9)
	calls[0].Time = time.Now().Add(-3 * time.Hour)
	calls[1].Client = "claude/2"
	calls[2].Principal = "ci"
	calls[3].Session = "abcdef0123"
	calls[4].Tool, calls[4].Backend, calls[4].BackendTool = "gh__find", "gh", "find"
	calls[5].Outcome = audit.Timeout
	calls[6].ID = `"mine"`
	calls[7].Method, calls[7].Tool = "prompts/get", "plan"
	calls[8].Dur = 3 * time.Second
	path := auditFile(t, calls...)
	for args, want := range map[string]string{
		"--since 2h":                  "234" + "56789",
		"--until 2h":                  "1",
		"--since 1d --until 1h":       "1",
		"--client claude":             "2",
		"--principal ci":              "3",
		"--session abcd":              "4",
		"--tool gh__find":             "5",
		"--tool find":                 "5",
		"--tool gh__*,plan":           "58",
		"--tool gh__* --tool plan":    "58",
		"--backend gh":                "5",
		"--outcome timeout":           "6",
		"--outcome failed":            "6",
		"--outcome timeout,cancelled": "6",
		"--id mine":                   "7",
		"--id " + callid.Text(3):      "3",
		"--slower 500ms":              "9",
		"--method prompts/get":        "8",
		"--method prompts/*":          "8",
		"--backend docs --slower 1s":  "9",
		"--slowest -n 2":              "98",
	} {
		out, _ := auditOutput(t, exitOK, "audit --json "+args+" "+path)
		got := ""
		for line := range strings.Lines(out) {
			_, rest, _ := strings.Cut(line, `"call":"`+callid.Prefix()+"-")
			got += rest[:1]
		}
		if got != want {
			t.Errorf("%s: calls %s, want %s", args, got, want)
		}
	}
}

func TestAuditErrors(t *testing.T) {
	t.Parallel()
	path := auditFile(t, auditCalls(2)...)
	for args, want := range map[string][]string{
		"--outcome okay":          {`no outcome is "okay"`, "the outcomes are: ok, tool_error", "failed"},
		"--since soon":            {`--since "soon": it is not a time`, "2h, 3d"},
		"--since -2h":             {"it is not a time"},
		"--since 1h --until 2h":   {"--since 1h is not before --until 2h"},
		"--by tool":               {"--by needs --stats"},
		"--stats --by color":      {`grouped by "color"`, "tool, backend, client"},
		"--stats -f":              {"--stats does not end with --follow"},
		"--slowest -f":            {"--slowest does not end"},
		"--stats --slowest":       {"leave one of them out"},
		"-f --until now":          {"--follow has no end"},
		"-f x y":                  {"--follow reads one file"},
		"-n -5":                   {"-n must not be negative"},
		"--slower -5s":            {"--slower must not be negative"},
		"--slower fast":           {"invalid argument"},
		"--tool a[b":              {`"a[b" is not a pattern`},
		"--tool ,":                {"--tool needs a value"},
		"--slowest -n 0":          {"--slowest takes -n from 1 to 1000"},
		"--slowest -n 1001":       {"--slowest takes -n from 1 to 1000"},
		"--stats --unknown-thing": {"unknown flag"},
	} {
		expect(t, exitUsage, "audit "+args+" "+path, want...)
	}
	expect(t, exitFailed, "audit /nonexistent/audit.jsonl", "/nonexistent/audit.jsonl: no such file",
		"check the name of the file")
	expect(t, exitFailed, "audit "+t.TempDir(), "it is not a regular file")
	expect(t, exitOK, "audit --tool nothing "+path, "no record was found")
}

// Without a file, audit.file of the configuration is read. If there is none, the error says what to
// set.
func TestAuditFileOfTheConfiguration(t *testing.T) {
	t.Parallel()
	path := auditFile(t, auditCalls(2)...)
	const secret = "backends: [{name: demo, embedded: demo, env: {X: '${command:false}'}}]\n"
	config := func(text string) string { return file(t, "gateway.yaml", demoText+text) }
	expect(t, exitOK, "audit -c "+file(t, "gateway.yaml", secret+"audit: {file: "+path+"}"),
		callid.Text(2))
	expect(t, exitFailed, "audit -c "+config(""), "audit records are part of the log",
		"set audit.file, or name a file: gateway audit LOG")
	expect(t, exitFailed, "audit -c "+config("audit: {file: none}"), "there are no audit records")
	missing := filepath.Join(t.TempDir(), "audit.jsonl")
	expect(t, exitFailed, "audit -c "+config("audit: {file: "+missing+"}"),
		"there is no audit file yet: "+missing, "a gateway that serves with this configuration")
}

// The lines of --json are those of the file, byte for byte; also those of a log.
func TestAuditJSONPrintsTheLinesOfTheFile(t *testing.T) {
	t.Parallel()
	path := auditFile(t, auditCalls(60)...)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if out, _ := auditOutput(t, exitOK, "audit --json "+path); out != string(text) {
		t.Errorf("%d bytes of %d", len(out), len(text))
	}
	odd := `{ "time" : "2026-01-02T03:04:05Z", "x":1.0e5, "outcome":"ok","msg":"call" ,"id":"\u0041"}`
	log := file(t, "log", `{"time":"2026-01-02T03:04:05Z","level":"INFO","msg":"other"}`+"\n"+odd+"\n")
	if out, _ := auditOutput(t, exitOK, "audit --json "+log); out != odd+"\n" {
		t.Errorf("got %s", out)
	}
}

// Text of clients and backends does not control the terminal, nor does it add rows.
func TestAuditEscapesTextOfOthers(t *testing.T) {
	t.Parallel()
	evil := "\x1b[2J\x9b2J\nTIME\u202e\u200b\t" + strings.Repeat("long", 500)
	r := auditCalls(1)[0]
	r.Client, r.Tool, r.BackendTool, r.Reason, r.ID = evil, evil, evil, evil, evil
	r.Outcome, r.Principal, r.Session = audit.BackendLost, evil, evil
	r.Arguments = []byte(`"` + "\u009b2J\u202e" + `"`)
	path := auditFile(t, r)
	log := file(t, "log", "time="+r.Time.UTC().Format(time.RFC3339Nano)+
		" level=WARN msg=\"stderr: \x1b]0;x\a\u202e\" backend=docs\n")
	for _, args := range []string{"audit ", "audit --stats --by client ", "audit --stats --by tool ",
		"audit show --log " + log + " " + callid.Text(1) + " "} {
		out, stderr := auditOutput(t, exitOK, args+path)
		if strings.ContainsAny(out+stderr, "\x1b\u009b\u202e\u200b\t\a") ||
			!utf8.ValidString(out) {
			t.Errorf("gateway %s: %q", args, out)
		}
		if rows := strings.Count(out, "\n"); !strings.Contains(args, "show") && rows != 2 {
			t.Errorf("gateway %s: %d rows", args, rows)
		}
	}
}

func TestAuditStats(t *testing.T) {
	t.Parallel()
	calls := auditCalls(100)
	for i := range calls {
		if i%10 == 0 {
			calls[i].Tool, calls[i].Outcome = "docs__fail", audit.ToolError
		}
	}
	path := auditFile(t, calls...)
	out, _ := auditOutput(t, exitOK, "audit --stats --by tool "+path)
	var fields [][]string
	for line := range strings.Lines(out) {
		fields = append(fields, strings.Fields(line))
	}
	if len(fields) != 3 || strings.Join(fields[0], " ") != "TOOL CALLS ERRORS P50 P95 P99 IN OUT" ||
		strings.Join(fields[1][:3], " ") != "docs__echo 90 0" ||
		strings.Join(fields[2][:3], " ") != "docs__fail 10 10" ||
		strings.Join(fields[1][6:], " ") != "9.0 kB 180.0 kB" {
		t.Errorf("got\n%s", out)
	}
	for _, by := range []string{"backend", "client", "principal", "outcome", "hour"} {
		out, _ := auditOutput(t, exitOK, "audit --stats --by "+by+" "+path)
		if !strings.HasPrefix(out, strings.ToUpper(by)+" ") {
			t.Errorf("--by %s:\n%s", by, out)
		}
	}
	out, _ = auditOutput(t, exitOK, "audit --stats --json --outcome ok "+path)
	for _, want := range []string{`"calls":90`, `"errors":0`, `"bytes_in":9000`, `"p50_ms":503.808`} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in %s", want, out)
		}
	}
	out, _ = auditOutput(t, exitOK, "audit --stats --by hour "+path)
	if hour := calls[99].Time.Local().Format("2006-01-02 15:00"); !strings.Contains(out, hour) {
		t.Errorf("no %s in\n%s", hour, out)
	}
}

func TestAuditShow(t *testing.T) {
	t.Parallel()
	calls := auditCalls(3)
	calls[1].Counts = audit.Counts{Rounds: 2, Progress: 17, Reconnects: 1}
	calls[1].Outcome, calls[1].Code, calls[1].Reason = audit.RPCError, -32000, "no such file"
	calls[1].Principal, calls[1].Confirmation = "ci", "accepted"
	calls[1].Arguments, calls[1].Result = []byte(`{"q":"x"}`), []byte(`{"message":"no"}`)
	calls[1].ID = `"mine"`
	path := auditFile(t, calls...)
	at := func(d time.Duration) string {
		return calls[1].Time.Add(d).UTC().Format(time.RFC3339Nano)
	}
	log := file(t, "log", "time="+at(-time.Minute)+" level=INFO msg=before backend=docs\n"+
		"time="+at(-10*time.Millisecond)+" level=WARN msg=\"stderr: disk full\" backend=docs\n"+
		"time="+at(0)+" level=WARN msg=other backend=gh\n"+
		"time="+at(time.Minute)+" level=INFO msg=after backend=docs\n")
	out, _ := auditOutput(t, exitOK, "audit show --log "+log+" "+callid.Text(2)+" "+path)
	for _, want := range []string{
		"call         " + callid.Text(2), "method       tools/call", "tool         docs__echo",
		"backend      docs (as echo)", "client       cursor/1.0", "principal    ci",
		"session      s1", `ids          client "mine", backend 7`, "(after 5ms)",
		"(after 25ms in all)", "received     " + calls[1].Started.Local().Format("2006-01-02 15:04"),
		"rounds       2", "progress     17", "reconnects   1", "outcome      rpc_error, code -32000",
		"reason       no such file", "confirmation accepted", "bytes        100 in, 2000 out",
		`arguments    {"q":"x"}`, `result       {"message":"no"}`,
		"log of backend docs at that time:", "disk full",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	for _, other := range []string{"before", "after b", "msg=other"} {
		if strings.Contains(out, other) {
			t.Errorf("%q in\n%s", other, out)
		}
	}
	if out, _ := auditOutput(t, exitOK, "audit show mine "+path); !strings.Contains(out, "rounds ") {
		t.Errorf("by the client's id:\n%s", out)
	}
	out, stderr := auditOutput(t, exitOK, "audit show 7 "+path)
	if strings.Count(out, "\n") != 4 || !strings.Contains(stderr, "3 calls have this id") {
		t.Errorf("several calls:\n%s%s", out, stderr)
	}
	out, _ = auditOutput(t, exitOK, "audit show --json 4 "+path)
	if strings.Count(out, "\n") != 2 || !strings.HasPrefix(out, "{") {
		t.Errorf("with --json:\n%s", out)
	}
	expect(t, exitFailed, "audit show nothing "+path, `no call has the id "nothing"`)
	expect(t, exitFailed, "audit show n*g "+path, `no call has the id "n*g"`)
	expect(t, exitUsage, "audit show", "name a call: gateway audit show ID")
	expect(t, exitFailed, "audit show --log /nonexistent "+callid.Text(2)+" "+path, "no such file")
}

// show lists at most 50 calls and prints at most 200 lines of the log.
func TestAuditShowIsBounded(t *testing.T) {
	t.Parallel()
	calls := auditCalls(60)
	path := auditFile(t, calls...)
	out, stderr := auditOutput(t, exitOK, "audit show 7 "+path)
	if n := strings.Count(out, "\n"); n != 1+maxListedCalls ||
		!strings.Contains(stderr, "60 calls have this id") {
		t.Errorf("%d rows, %s", n, stderr)
	}
	line := "time=" + calls[0].Time.UTC().Format(time.RFC3339Nano) + " msg=x backend=docs\n"
	log := file(t, "log", strings.Repeat(line, maxCallLines+1))
	out, _ = auditOutput(t, exitOK, "audit show --log "+log+" "+callid.Text(1)+" "+path)
	if n := strings.Count(out, "msg=x"); n != maxCallLines ||
		!strings.Contains(out, "only the first 200 lines") {
		t.Errorf("%d lines of the log", n)
	}
}

func TestAuditTimes(t *testing.T) {
	zone := time.FixedZone("", 3600)
	now := time.Date(2026, 11, 29, 14, 30, 0, 0, zone)
	for text, want := range map[string]time.Time{
		"":                     {},
		"now":                  now,
		"today":                time.Date(2026, 11, 29, 0, 0, 0, 0, zone),
		"yesterday":            time.Date(2026, 11, 28, 0, 0, 0, 0, zone),
		"2h":                   now.Add(-2 * time.Hour),
		"3d":                   now.Add(-72 * time.Hour),
		"1d12h":                now.Add(-36 * time.Hour),
		"90m":                  now.Add(-90 * time.Minute),
		"09:15":                time.Date(2026, 11, 29, 9, 15, 0, 0, zone),
		"14:30:01":             time.Date(2026, 11, 28, 14, 30, 1, 0, zone), // the last one
		"2026-11-01":           time.Date(2026, 11, 1, 0, 0, 0, 0, zone),
		"2026-11-01 08:00":     time.Date(2026, 11, 1, 8, 0, 0, 0, zone),
		"2026-11-01T08:00":     time.Date(2026, 11, 1, 8, 0, 0, 0, zone),
		"2026-11-01T08:00:05Z": time.Date(2026, 11, 1, 8, 0, 5, 0, time.UTC),
	} {
		if got, err := auditTime("--since", text, now); err != nil || !got.Equal(want) {
			t.Errorf("%s: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"-2h", "d", "3x", "1d-2h", "25:00", "2026-13-01", "tomorrow", "-1d",
		"99999999d"} {
		if got, err := auditTime("--since", text, now); err == nil {
			t.Errorf("%s: %v", text, got)
		}
	}
}
