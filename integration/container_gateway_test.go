//go:build linux

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// deafServer is a server for sh that goes on when stdin has ended, and ignores SIGTERM.
const deafServer = `trap "" TERM INT HUP
	while read -r line; do
		id=$(printf %s "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
		case $line in
		*'"initialize"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"deaf","version":"1"}}}' ;;
		*'"tools/list"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}}' ;;
		*'"tools/call"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"content":[]}}' ;;
		*'"id"'*) echo '{"jsonrpc":"2.0","id":'$id',"error":{"code":-32601,"message":"no"}}' ;;
		esac
	done
	while :; do sleep 0.2; done`

// standIn is an engine that does with processes what a real one does with containers, as far as the
// gateway is concerned: the process of a container neither descends from run nor has its environment,
// ends by stop and rm alone, and is known by the id in --cidfile. $PODS is where it keeps its state.
const standIn = `#!/bin/sh
	case $1 in --root) shift 2 ;; esac
	case $1 in
	run)
		cid= ; shift
		while :; do case $1 in --cidfile) cid=$2; shift 2 ;; --name) name=$2; shift 2 ;; -*) shift ;; *) break ;; esac; done
		[ -e "$cid" ] && { echo "container id file exists: $cid" >&2; exit 125; }
		[ -n "$name" ] && grep -qs "^$name$" "$PODS"/*.name && { echo "the container name $name is in use" >&2; exit 125; }
		id=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
		env -i PODS="$PODS" ID=$id sh -c 'trap "" TERM; setsid sh -c "trap \"\" TERM; echo \$\$ >$PODS/$ID.pid; while :; do sleep 0.2; done" <&- >&- 2>&- &'
		while ! [ -s "$PODS/$id.pid" ]; do sleep 0.01; done
		[ -n "$name" ] && echo "$name" >"$PODS/$id.name"
		printf %s $id >"$cid"
		shift; exec "$@" ;;
	stop|rm)
		for id; do :; done
		[ -e "$PODS/$id.pid" ] || { echo "Error: no container with ID $id found: no such container" >&2; exit 1; }
		kill -s KILL $(cat "$PODS/$id.pid"); echo "$1" >>"$PODS/commands"
		[ $1 = rm ] && rm -f "$PODS/$id.pid" "$PODS/$id.name"
		echo $id ;;
	*) exit 125 ;;
	esac`

// An engineOfTest runs containers for a test.
type engineOfTest struct {
	server  backend         // runs deafServer in a container
	present func() []string // containers, whether they run or not
}

func newStandIn(t testing.TB, name string, options ...string) engineOfTest {
	t.Helper()
	dir := t.TempDir()
	exe := filepath.Join(dir, "podman")
	if err := os.WriteFile(exe, []byte(standIn), 0o755); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"--root", "/none", "run", "-i", "--rm"}, options...)
	pods := func() (found []string) {
		files, _ := filepath.Glob(filepath.Join(dir, "*.pid"))
		for _, file := range files {
			text, _ := os.ReadFile(file)
			found = append(found, strings.TrimSpace(string(text)))
		}
		return found
	}
	t.Cleanup(func() {
		for _, text := range pods() {
			if pid, err := strconv.Atoi(text); err == nil {
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	})
	return engineOfTest{
		backend{Name: name, Command: exe, Args: append(args, "image", "/bin/sh", "-c", deafServer), Env: map[string]string{"PODS": dir}},
		pods,
	}
}

// TestContainersEnd_F_PROC_1 has a stand-in for the engine. With the tag podman the same is done with a
// real one.
func TestContainersEnd_F_PROC_1(t *testing.T) {
	t.Parallel()
	containersEnd(t, func(t *testing.T, options ...string) engineOfTest { return newStandIn(t, "pod", options...) })
}

// containersEnd has backends in containers end in every way there is.
func containersEnd(t *testing.T, engine func(t *testing.T, options ...string) engineOfTest) {
	begin := func(t *testing.T, more map[string]any, e engineOfTest) (*setup, *rawClient) {
		s := newSetup(t, more, e.server, actor("other", "mirror", ""))
		gw := s.start()
		gw.greet("2025-11-25")
		listTools(t, gw)
		if got := e.present(); len(got) != 1 {
			t.Fatalf("containers: %q", got)
		}
		return s, gw
	}
	none := func(t *testing.T, s *setup, e engineOfTest) {
		t.Helper()
		if !poll(patience, func() bool { return len(e.present()) == 0 }) {
			t.Errorf("left: %q", e.present())
		}
		var files []string
		if !poll(patience, func() bool {
			files, _ = filepath.Glob(filepath.Join(s.dir, "state", "containers", "*"))
			return len(files) == 0
		}) {
			t.Errorf("records left: %q", files)
		}
	}
	for name, end := range map[string]func(*rawClient){
		"F-PROC-1 end of file": func(gw *rawClient) { gw.stdin.Close() },
		"F-PROC-1 SIGTERM":     func(gw *rawClient) { gw.cmd.Process.Signal(syscall.SIGTERM) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := engine(t)
			s, gw := begin(t, nil, e)
			began := time.Now()
			end(gw)
			if code := gw.exitCode(20 * time.Second); code != 0 {
				t.Errorf("exit code %d", code)
			}
			t.Logf("it ended within %v", time.Since(began).Round(time.Millisecond))
			if got := e.present(); len(got) > 0 {
				t.Errorf("left when the gateway exited: %q", got)
			}
			none(t, s, e)
		})
	}
	t.Run("F-PROC-1 kill -9, the next start", func(t *testing.T) {
		t.Parallel()
		e := engine(t, "--name", "pod-"+itoa(marks.Add(1)))
		s, gw := begin(t, nil, e)
		gw.cmd.Process.Kill()
		gw.exitCode(patience)
		left := e.present()
		if len(left) != 1 {
			t.Fatalf("after kill -9: %q", left)
		}
		// Another gateway with the same state leaves the container of the second one alone.
		second := s.start()
		second.greet("2025-11-25")
		listTools(t, second)
		if m := callTool(second, "t", `{}`); m.Result == nil {
			t.Errorf("a call: %s", m.Raw)
		}
		now := e.present()
		if len(now) != 1 || now[0] == left[0] {
			t.Errorf("containers: %q, was %q", now, left)
		}
		third := newSetup(t, map[string]any{"state": filepath.Join(s.dir, "state")}, actor("mirror", "mirror", "")).start()
		third.greet("2025-11-25")
		listTools(t, third)
		third.finish(patience)
		if got := e.present(); len(got) != 1 || got[0] != now[0] {
			t.Errorf("another gateway has ended the container: %q, was %q", got, now)
		}
		second.finish(20 * time.Second)
		none(t, s, e)
	})
	t.Run("F-PROC-1 idle_stop, and the process ends", func(t *testing.T) {
		t.Parallel()
		e := engine(t)
		s, gw := begin(t, map[string]any{"defaults": map[string]any{"idle_stop": "1s"}}, e)
		for range 2 {
			none(t, s, e)
			if m := callTool(gw, "t", `{}`); m.Result == nil {
				t.Errorf("a call: %s", m.Raw)
			}
		}
		was := e.present()
		for _, p := range s.mark.processes() {
			if strings.Contains(p.args, "deaf") && !strings.Contains(p.args, "podman-") {
				syscall.Kill(p.pid, syscall.SIGKILL)
			}
		}
		if !poll(patience, func() bool { got := e.present(); return len(got) == 0 || fmt.Sprint(got) != fmt.Sprint(was) }) {
			t.Errorf("the process was killed, and the container is there: %q", e.present())
		}
		gw.finish(20 * time.Second)
		none(t, s, e)
	})
	t.Run("F-PROC-1 reload", func(t *testing.T) {
		t.Parallel()
		e := engine(t)
		s, gw := begin(t, nil, e)
		text, err := os.ReadFile(s.config)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(s.config, []byte(strings.Replace(string(text), "- name: pod", "- enabled: false\n      name: pod", 1)), 0o644); err != nil {
			t.Fatal(err)
		}
		gw.cmd.Process.Signal(syscall.SIGHUP)
		none(t, s, e)
		gw.finish(20 * time.Second)
	})
}
