//go:build unix

package integration

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestSEC_03_NoSecretIsShown has a secret in every key of the configuration that may have one,
// and backends that repeat their secrets in all their errors. No secret may be in the log at level
// debug, in the audit file with payloads, in the output of commands, or on disk, which secretSearch
// searches, or in responses to clients.
func TestSEC_03_NoSecretIsShown(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	t.Parallel()
	// The beginning of each secret.
	sentinel := registerSecret(t, "a value of the configuration", newSecretValue()[:15])
	// The values have characters that some formats escape.
	value := func(of string) string {
		return registerSecret(t, of, sentinel+"-"+of+"+/=&é\"x")
	}
	script := `read -r l; echo "token $TOKEN arg $1" >&2; echo "Authorization: Bearer $TOKEN"; exit 3`
	failing := backend{Name: "failing", Command: "sh",
		Args: []string{"-c", script, "sh", "${ARG_SECRET}"},
		Env:  map[string]string{"TOKEN": value("env")}}
	mirror := helperBackend("mirror", "mirror", "")
	mirror.Env["TOKEN"] = value("env of another")
	query := "?key=" + sentinel + "-query%2B&other=" + sentinel + "-other"
	echoing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.WriteHeader([]int{500, 401, 200, 404}[len(body)%4])
		fmt.Fprintf(w, "no: %s %s %v", r.URL, r.Header.Get("X-Api-Key"), r.Header["Authorization"])
	}))
	t.Cleanup(echoing.Close)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close() // nothing listens there any longer
	headers := map[string]string{"Authorization": "Bearer " + sentinel + "-bearer",
		"X-Api-Key": sentinel + "-header"}
	user := strings.Replace(echoing.URL, "://", "://me:"+sentinel+"-password@", 1)
	argument := secretArgument(t, "args")
	s := newSetup(t, map[string]any{
		"catalog": map[string]any{"wait": "2s"},
		"auth":    map[string]any{"tokens": []string{sentinel + "-token-0123456789"}},
	}, mirror, failing,
		backend{Name: "echoing", URL: user + "/mcp" + query, Headers: headers},
		backend{Name: "sse", URL: echoing.URL + "/sse" + query, Headers: headers,
			Transport: "sse"},
		backend{Name: "closed", URL: "http://" + closed.Addr().String() + "/mcp" + query,
			Headers: headers})

	run := func(args ...string) *exec.Cmd {
		cmd := exec.Command(gateway(t), append([]string{"-c", s.config, "--log-level", "debug"},
			args...)...)
		cmd.Env, cmd.Dir = s.env("ARG_SECRET="+argument), s.dir
		return cmd
	}
	gw := startRaw(t, run())
	gw.repeats = true // the last response has the URI
	gw.initialize("2025-11-25")
	listTools(t, gw)
	callTool(gw, "request", `{"token":"`+sentinel+`-bearer","note":"`+sentinel+`-query+"}`)
	callTool(gw, "die", `{}`)
	for _, name := range []string{"failing", "echoing", "sse", "closed"} {
		callTool(gw, name+"__x", `{}`)
	}
	gw.call("resources/read", `{"uri":"file:///`+sentinel+`-other"}`)
	if code := gw.finish(waitTimeout); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for i, line := range gw.received() {
		// These repeat the client's message.
		if !bytes.Contains(line, []byte(`\"token\"`)) && !bytes.Contains(line, []byte(`"uri"`)) {
			searchText(t, fmt.Sprint("line ", i, " on stdout"), line)
		}
	}
	for _, args := range [][]string{{"check"}, {"tools"}} {
		out, _ := combinedOutput(t, run(args...)) // the command fails, because backends fail
		if !bytes.Contains(out, []byte("mirror")) {
			t.Errorf("%q prints %s", args, out)
		}
	}
	log, err := os.ReadFile(gw.stderr)
	record, auditErr := os.ReadFile(s.audit)
	if err != nil || auditErr != nil || !bytes.Contains(log, []byte("token *** arg ***")) ||
		!bytes.Contains(record, []byte("***")) {
		t.Errorf("nothing is masked: %v, %v\n%s\n%s", err, auditErr, log, record)
	}
}

// TestMask_F_MASK_1: values of env and inherit_env are masked if they have the name or the form
// of a secret; the gateway's own address and other backends' names are not.
func TestMask_F_MASK_1(t *testing.T) {
	t.Parallel()
	inherited := secret(t, "inherited variable")
	script := `echo "host $DB_HOST team $TEAM password $DB_PASS deploy $DEPLOY_TOKEN region $REGION" >&2; exit 3`
	s := newSetup(t, map[string]any{"catalog": map[string]any{"wait": "2s"}},
		backend{
			Name: "failing", Command: "sh", Args: []string{"-c", script},
			InheritEnv: []string{"DEPLOY_TOKEN", "REGION"},
			Env: map[string]string{"DB_HOST": "127.0.0.1", "TEAM": "mirror",
				"DB_PASS": "hunter2"},
		},
		helperBackend("mirror", "mirror", ""))
	cmd := exec.Command(gateway(t), "-c", s.config, "--log-level", "debug", "check")
	cmd.Env, cmd.Dir = s.env("DEPLOY_TOKEN="+inherited, "REGION=eu-west-1-long"), s.dir
	out, _ := combinedOutput(t, cmd) // the command fails, because a backend fails
	const want = "host 127.0.0.1 team mirror password *** deploy *** region eu-west-1-long"
	if !bytes.Contains(out, []byte(want)) || bytes.Contains(out, []byte("hunter2")) {
		t.Errorf("%q is not in %s", want, out)
	}
}
