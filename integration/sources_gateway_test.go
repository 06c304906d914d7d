//go:build linux

package integration

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// writeFile writes a file that only this user can read, and its folders.
func writeFile(t testing.TB, path, text string) {
	t.Helper()
	hasSecrets(path)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A Kubernetes secret is a link to a file in a folder that is replaced as a whole. A missing secret
// makes only its backend misconfigured; the gateway starts the backend when the secret appears, and
// restarts it when the secret is rotated.
func TestSources_KubernetesSecretIsRotated(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	t.Parallel()
	mount := filepath.Join(t.TempDir(), "secrets")
	mountVersion := func(n int, text string) {
		t.Helper()
		folder := fmt.Sprint("..", n)
		writeFile(t, filepath.Join(mount, folder, "version"), text)
		next := filepath.Join(mount, "..data.next")
		if err := os.Symlink(folder, next); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, filepath.Join(mount, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(mount, "version")
	b := weather("late", "")
	b.Env["WEATHER_VERSION"] = "${file:" + path + "}"
	s := newSetup(t, nil, b, weather("other", "1"))
	gw := s.start()
	log := gw.logReader()
	missing := "${file:" + path + "}: no such file"
	log.await("misconfigured backend not started", "backend=late", missing)
	gw.initialize("2025-11-25")
	if m := callTool(gw, "late__x", `{}`); !strings.Contains(string(m.Raw), missing) {
		t.Errorf("%s", m.Raw)
	}
	mountVersion(1, "v-one\n")
	if err := os.Symlink(filepath.Join("..data", "version"), path); err != nil {
		t.Fatal(err)
	}
	log.await(logReloaded, "late", "started")
	other := callTool(gw, "other_who", `{}`).Result
	for n, want := range []string{"v-one", "v-two", "v-three"} {
		if n > 0 {
			mountVersion(n+1, want)
			log.await(logReloaded, "late (env.WEATHER_VERSION; restarted)", "kept=1")
		}
		if m := callTool(gw, "late_who", `{}`); !strings.Contains(string(m.Raw), "late "+want+" ") {
			t.Errorf("%s, want %s", m.Raw, want)
		}
	}
	if again := callTool(gw, "other_who", `{}`).Result; !bytes.Equal(other, again) {
		t.Errorf("the other backend was restarted: %s, %s", other, again)
	}
	// A secret that is removed does not stop the running backend.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	log.await("new entry of the backend misconfigured: keeping the old entry", missing)
	if m := callTool(gw, "late_who", `{}`); !strings.Contains(string(m.Raw), "late v-three ") {
		t.Errorf("%s", m.Raw)
	}
	if code := gw.finish(waitTimeout); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// A command runs once at the start and once for each load of the file: not for the second backend
// that contains it, not while the file is watched, and not for gateway health.
func TestSources_CommandRunsOncePerLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	t.Parallel()
	dir := t.TempDir()
	runs := filepath.Join(dir, "runs")
	script := filepath.Join(dir, "print")
	writeFile(t, script, "#!/bin/sh\necho x >>"+runs+"\nwc -l <"+runs+"\n")
	if err := os.Chmod(script, 0o700); err != nil {
		t.Fatal(err)
	}
	count := func() int {
		text, _ := os.ReadFile(runs)
		return bytes.Count(text, []byte("\n"))
	}
	one, two := weather("one", ""), weather("two", "")
	one.Env["WEATHER_VERSION"] = "v-${command:" + script + "}"
	two.Env["WEATHER_VERSION"] = "w-${command:" + script + "}"
	s := newSetup(t, map[string]any{"listen": "127.0.0.1:0"}, one, two)
	gw := s.start("serve", "--stdio")
	log := gw.logReader()
	gw.initialize("2025-11-25")
	check := func(n int) {
		t.Helper()
		if got := count(); got != n {
			t.Errorf("%d runs, want %d", got, n)
		}
		if m := callTool(gw, "one_who", `{}`); !strings.Contains(string(m.Raw), fmt.Sprint("one v-", n, " ")) {
			t.Errorf("%s, want version %d", m.Raw, n)
		}
		if m := callTool(gw, "two_who", `{}`); !strings.Contains(string(m.Raw), fmt.Sprint("two w-", n, " ")) {
			t.Errorf("%s, want version %d", m.Raw, n)
		}
	}
	listTools(t, gw)
	check(1)
	// The file is written with the same text.
	log.await(`msg="configuration unchanged"`) // the start of the watch
	text, err := os.ReadFile(s.config)
	if err != nil {
		t.Fatal(err)
	}
	s.replaceConfig(string(text))
	log.await(`msg="configuration unchanged"`)
	health := exec.Command(gateway(t), "health", "-c", s.config)
	health.Env, health.Dir = s.env(), s.dir
	if out, err := combinedOutput(t, health); err == nil ||
		!bytes.Contains(out, []byte("port is chosen")) {
		t.Errorf("%v: %s", err, out)
	}
	check(1)
	gw.cmd.Process.Signal(syscall.SIGHUP)
	log.await(logReloaded, "one (env.WEATHER_VERSION; restarted)", "two (env.WEATHER_VERSION; restarted)")
	check(2)
	s.editConfig(func(doc map[string]any) { doc["log"] = map[string]any{"level": "info"} })
	log.await(logReloaded)
	check(3)
	if code := gw.finish(waitTimeout); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// SIGTERM during a command kills the command, and the gateway ends at once.
func TestSources_TerminationDuringCommand(t *testing.T) {
	t.Parallel()
	s := newSetup(t, nil, backend{Name: "a", Command: "x", Args: []string{"${command:sleep 60}"}})
	cmd := exec.Command(gateway(t), "-c", s.config, "serve", "--listen", "127.0.0.1:0")
	cmd.Env, cmd.Dir = s.env(), s.dir
	start := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if !poll(waitTimeout, func() bool { return len(childrenOf(cmd.Process.Pid)) > 0 }) {
		t.Error("the command does not run")
	}
	cmd.Process.Signal(syscall.SIGTERM)
	cmd.Wait()
	if took := time.Since(start); took > 8*time.Second {
		t.Errorf("it took %s", took)
	}
}

// childrenOf returns the child processes of a process whose command line contains sleep.
func childrenOf(pid int) (all []string) {
	out, _ := exec.Command("ps", "-o", "args=", "--ppid", fmt.Sprint(pid)).Output()
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "sleep 60") {
			all = append(all, line)
		}
	}
	return all
}

// A gateway.yaml in the working directory that is not approved runs no command and reads no file,
// not even while gateway trust prints it. Once it is approved, its values are read.
func TestSources_UnapprovedFileReadsNothing(t *testing.T) {
	t.Parallel()
	s := newSetup(t, nil)
	project := t.TempDir()
	proof := filepath.Join(project, "proof")
	pipe := filepath.Join(project, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	text := "env_file: pipe\nbackends:\n- {name: a, command: x, env_file: pipe, " +
		"args: [\"${command:touch " + proof + "}\", \"${file:pipe}\"]}\n"
	writeFile(t, filepath.Join(project, "gateway.yaml"), text)
	for _, args := range [][]string{{"check"}, {"tools"}, {"call", "x"}, {"check", "--diff"}, {"serve"},
		{"health"}, {"trust"}} {
		cmd := exec.Command(gateway(t), args...)
		cmd.Env, cmd.Dir = s.env(), project
		start := time.Now()
		out, err := combinedOutput(t, cmd)
		isTrust := args[0] == "trust"
		if (err == nil) != isTrust || !isTrust && !bytes.Contains(out, []byte("is not approved")) {
			t.Errorf("%q: %v: %s", args, err, out)
		}
		if took := time.Since(start); took > 8*time.Second { // a read of the pipe takes 10 s
			t.Errorf("%q took %s", args, took)
		}
		if _, err := os.Stat(proof); err == nil {
			t.Errorf("%q has run the command", args)
		}
		for _, want := range []string{"gets the output of the command: touch " + proof,
			"the gateway gets the variables in: pipe", "backend a gets the variables in: pipe",
			"backend a gets the content of: pipe"} {
			if isTrust && !bytes.Contains(out, []byte(want)) {
				t.Errorf("trust does not print %q: %s", want, out)
			}
		}
	}
	writeFile(t, filepath.Join(project, "gateway.yaml"),
		"backends: [{name: a, command: x, args: [\"${command:touch "+proof+"}\"]}]\n")
	for _, args := range [][]string{{"trust"}, {"check"}} {
		cmd := exec.Command(gateway(t), args...)
		cmd.Env, cmd.Dir = s.env(), project
		out, _ := combinedOutput(t, cmd) // check fails, because touch prints nothing
		if args[0] == "check" && !bytes.Contains(out, []byte("the first line of its output is empty")) {
			t.Errorf("%s", out)
		}
	}
	if _, err := os.Stat(proof); err != nil {
		t.Error("the command of the approved file did not run")
	}
}

// The program of a backend gets the variables of env_file; env_file at the top level is for ${VAR}
// only. A change of the files restarts the backends that use them. envFile of other clients is
// env_file.
func TestSources_EnvFile(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	t.Parallel()
	viaTop, viaFile := weather("top", "${SHARED}"), weather("file", "")
	delete(viaFile.Env, "WEATHER_VERSION")
	s := newSetup(t, map[string]any{"env_file": "conf/top.env"}, viaTop, viaFile)
	top, file := filepath.Join(s.dir, "conf", "top.env"), filepath.Join(s.dir, "conf", "file.env")
	writeFile(t, top, "SHARED=s-one\nWEATHER_VERSION=must-not-be-passed\n")
	writeFile(t, file, "# version\nexport WEATHER_VERSION='f-one'\nWEATHER_NAME=overridden_\n")
	s.editConfig(func(doc map[string]any) { backendEntry(doc, "file")["env_file"] = "conf/file.env" })
	gw := s.start()
	log := gw.logReader()
	gw.initialize("2025-11-25")
	listTools(t, gw)
	check := func(tool, want string) {
		t.Helper()
		if m := callTool(gw, tool, `{}`); !strings.Contains(string(m.Raw), want) {
			t.Errorf("%s, want %s", m.Raw, want)
		}
	}
	check("top_who", "top s-one ")
	check("file_who", "file f-one ")
	writeFile(t, file, "WEATHER_VERSION=f-two\n")
	log.await(logReloaded, "file (env.WEATHER_VERSION; restarted)", "kept=1")
	check("file_who", "file f-two ")
	writeFile(t, top, "SHARED=s-two\n")
	log.await(logReloaded, "top (env.WEATHER_VERSION; restarted)", "kept=1")
	check("top_who", "top s-two ")
	writeFile(t, top, "SHARED=s-three\n"+secret(t, "a line without a name")+"\n")
	log.await("configuration error", "env_file: "+top+":2: is not a line of the form NAME=value")
	check("top_who", "top s-two ")
	writeFile(t, top, "SHARED=s-four\n")
	log.await(logReloaded, "top (env.WEATHER_VERSION; restarted)")
	check("top_who", "top s-four ")
	if code := gw.finish(waitTimeout); code != 0 {
		t.Errorf("exit code %d", code)
	}

	servers := filepath.Join(s.dir, "servers.json")
	writeFile(t, servers, `{"mcpServers": {"file": {"command": "`+viaFile.Command+
		`", "env": {"INTEGRATION_HELPER": "helper-weather", "WEATHER_NAME": "file_"}, "envFile": "conf/file.env"}}}`)
	cmd := exec.Command(gateway(t), "-c", servers, "call", "file_who")
	cmd.Env, cmd.Dir = s.env(), s.dir
	if out, err := combinedOutput(t, cmd); err != nil ||
		!bytes.Contains(out, []byte("file f-two ")) {
		t.Errorf("%v: %s", err, out)
	}
}

// TestSources_NoSecretIsShown has a secret in each kind of source. Backends repeat their secrets in
// all their errors, and a command prints one to stderr. No secret may be in the log at level debug,
// in the audit file with payloads, in the output of commands, on disk, or in the command line of a
// process, which secretSearch searches, or in responses to clients.
func TestSources_NoSecretIsShown(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	t.Parallel()
	// The beginning of each secret.
	sentinel := registerSecret(t, "a value of a source", newSecretValue()[:15])
	value := func(of string) string {
		return registerSecret(t, of, sentinel+"-"+of+"+/=&é\"x")
	}
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "file"), value("file")+"\n")
	writeFile(t, filepath.Join(dir, "lines"), sentinel+"-line-one\n"+sentinel+"-line-two\n")
	writeFile(t, filepath.Join(dir, "vars.env"), "TOP_TOKEN='"+value("top")+"'\n")
	writeFile(t, filepath.Join(dir, "own.env"), "OWN_TOKEN='"+value("own")+"'\n")
	writeFile(t, filepath.Join(dir, "token"), sentinel+"-token-0123456789\n")
	const script = `read -r l; echo "env $A $B $C $D $OWN_TOKEN" >&2; echo "$A"; exit 3`
	failing := backend{Name: "failing", Command: "sh", Args: []string{"-c", script},
		Env: map[string]string{
			"A": "${file:" + dir + "/file}", "B": "${command:cat " + dir + "/file}",
			"C": "${TOP_TOKEN}", "D": "${file:" + dir + "/lines}",
		}}
	wrong := backend{Name: "wrong", Command: "x", Args: []string{
		`${command:sh -c 'cat "$0"/file; cat "$0"/file "$0"/token >&2; exit 3' ` + dir + `}`}}
	mirror := helperBackend("mirror", "mirror", "")
	mirror.Env["TOKEN"] = "${file:" + dir + "/token}"
	s := newSetup(t, map[string]any{
		"catalog":  map[string]any{"wait": "2s"},
		"auth":     map[string]any{"tokens": []string{"${file:" + dir + "/token}"}},
		"env_file": filepath.Join(dir, "vars.env"),
	}, mirror, failing, wrong)
	s.editConfig(func(doc map[string]any) {
		backendEntry(doc, "failing")["env_file"] = filepath.Join(dir, "own.env")
	})
	run := func(args ...string) *exec.Cmd {
		cmd := exec.Command(gateway(t), append([]string{"-c", s.config, "--log-level", "debug"},
			args...)...)
		cmd.Env, cmd.Dir = s.env(), s.dir
		return cmd
	}
	gw := startRaw(t, run())
	log := gw.logReader()
	log.await("misconfigured backend not started", "backend=wrong", "it ended with exit status 3: ")
	gw.initialize("2025-11-25")
	listTools(t, gw)
	callTool(gw, "request", `{"token":"`+sentinel+`-token-0123456789","note":"`+sentinel+`-line-two"}`)
	callTool(gw, "die", `{}`)
	for _, name := range []string{"failing", "wrong"} {
		callTool(gw, name+"__x", `{}`)
	}
	gw.cmd.Process.Signal(syscall.SIGHUP)
	log.await(`msg="configuration unchanged"`)
	writeFile(t, filepath.Join(dir, "own.env"), "OWN_TOKEN='"+value("new")+"'\nnot a line "+sentinel+"\n")
	log.await("new entry of the backend misconfigured", "own.env:2")
	if code := gw.finish(waitTimeout); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for i, line := range gw.received() {
		if !bytes.Contains(line, []byte(`\"token\"`)) { // this repeats the client's message
			searchText(t, fmt.Sprint("line ", i, " on stdout"), line)
		}
	}
	text, err := os.ReadFile(gw.stderr)
	if err != nil || !bytes.Contains(text, []byte("env *** *** *** ***")) {
		t.Errorf("the log: %v, %s", err, text)
	}
	for _, args := range [][]string{{"check"}, {"tools"}, {"check", "--diff"}, {"trust", s.config},
		{"secret", "list"}} {
		_, _ = combinedOutput(t, run(args...)) // the command fails, because backends fail
	}
}
