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

// unstoppableServer is a shell script of a server that continues after the end of stdin and
// ignores SIGTERM.
const unstoppableServer = `trap "" TERM INT HUP
	while read -r line; do
		id=$(printf %s "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
		case $line in
		*'"initialize"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"unstoppable","version":"1"}}}' ;;
		*'"tools/list"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}}' ;;
		*'"tools/call"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"content":[]}}' ;;
		*'"id"'*) echo '{"jsonrpc":"2.0","id":'$id',"error":{"code":-32601,"message":"no"}}' ;;
		esac
	done
	while :; do sleep 0.2; done`

// fakeEngineScript replaces a container engine with processes that behave, as far as the gateway
// is concerned, like containers: the process of a container neither descends from run nor has
// its environment, is ended only by stop and rm, and has an id, in --cidfile. $PODS is the
// directory of its state.
const fakeEngineScript = `#!/bin/sh
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

// A containerEngine runs containers for a test.
type containerEngine struct {
	server  backend         // runs unstoppableServer in a container
	present func() []string // all containers, running or not
}

func newFakeEngine(t testing.TB, name string, options ...string) containerEngine {
	t.Helper()
	dir := t.TempDir()
	exe := filepath.Join(dir, "podman")
	if err := os.WriteFile(exe, []byte(fakeEngineScript), 0o755); err != nil {
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
	return containerEngine{
		backend{Name: name, Command: exe,
			Args: append(args, "image", "/bin/sh", "-c", unstoppableServer),
			Env:  map[string]string{"PODS": dir}},
		pods,
	}
}

// TestContainers_StoppedWithBackend_F_PROC_1 uses a fake engine. With the tag podman, a test
// does the same with a real engine.
func TestContainers_StoppedWithBackend_F_PROC_1(t *testing.T) {
	t.Parallel()
	testContainersStop(t, func(t *testing.T, options ...string) containerEngine {
		return newFakeEngine(t, "pod", options...)
	})
}

// testContainersStop stops backends in containers in each possible way.
func testContainersStop(t *testing.T, engine func(
	t *testing.T, options ...string,
) containerEngine) {
	begin := func(t *testing.T, more map[string]any, e containerEngine) (*setup, *rawClient) {
		s := newSetup(t, more, e.server, helperBackend("other", "mirror", ""))
		gw := s.start()
		gw.initialize("2025-11-25")
		listTools(t, gw)
		if got := e.present(); len(got) != 1 {
			t.Fatalf("containers: %q", got)
		}
		return s, gw
	}
	none := func(t *testing.T, s *setup, e containerEngine) {
		t.Helper()
		if !poll(waitTimeout, func() bool { return len(e.present()) == 0 }) {
			t.Errorf("left: %q", e.present())
		}
		var files []string
		if !poll(waitTimeout, func() bool {
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
			t.Logf("exited after %v", time.Since(began).Round(time.Millisecond))
			if got := e.present(); len(got) > 0 {
				t.Errorf("left when the gateway exited: %q", got)
			}
			none(t, s, e)
		})
	}
	t.Run("F-PROC-1 next start after kill -9", func(t *testing.T) {
		t.Parallel()
		e := engine(t, "--name", "pod-"+itoa(markerCount.Add(1)))
		s, gw := begin(t, nil, e)
		gw.cmd.Process.Kill()
		gw.exitCode(waitTimeout)
		left := e.present()
		if len(left) != 1 {
			t.Fatalf("after kill -9: %q", left)
		}
		// Another gateway with the same state does not stop the container of the second one.
		second := s.start()
		second.initialize("2025-11-25")
		listTools(t, second)
		if m := callTool(second, "t", `{}`); m.Result == nil {
			t.Errorf("call: %s", m.Raw)
		}
		now := e.present()
		if len(now) != 1 || now[0] == left[0] {
			t.Errorf("containers: %q, was %q", now, left)
		}
		third := newSetup(t, map[string]any{"state": filepath.Join(s.dir, "state")},
			helperBackend("mirror", "mirror", "")).start()
		third.initialize("2025-11-25")
		listTools(t, third)
		third.finish(waitTimeout)
		if got := e.present(); len(got) != 1 || got[0] != now[0] {
			t.Errorf("another gateway has stopped the container: %q, was %q", got, now)
		}
		second.finish(20 * time.Second)
		none(t, s, e)
	})
	t.Run("F-PROC-1 idle_stop and killed process", func(t *testing.T) {
		t.Parallel()
		e := engine(t)
		s, gw := begin(t, map[string]any{"defaults": map[string]any{"idle_stop": "1s"}}, e)
		for range 2 {
			none(t, s, e)
			if m := callTool(gw, "t", `{}`); m.Result == nil {
				t.Errorf("call: %s", m.Raw)
			}
		}
		was := e.present()
		for _, p := range s.marker.processes() {
			if strings.Contains(p.args, "unstoppable") && !strings.Contains(p.args, "podman-") {
				syscall.Kill(p.pid, syscall.SIGKILL)
			}
		}
		if !poll(waitTimeout,
			func() bool {
				got := e.present()
				return len(got) == 0 || fmt.Sprint(got) != fmt.Sprint(was)
			}) {
			t.Errorf("the process was killed, and the container is still there: %q", e.present())
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
		if err := os.WriteFile(s.config,
			[]byte(strings.Replace(string(text), "- name: pod", "- enabled: false\n      name: pod",
				1)), 0o644); err != nil {
			t.Fatal(err)
		}
		gw.cmd.Process.Signal(syscall.SIGHUP)
		none(t, s, e)
		gw.finish(20 * time.Second)
	})
}
