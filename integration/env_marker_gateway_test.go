//go:build linux

package integration

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A process that has a backend's marker in its environment, but does not descend from the
// gateway, is not killed, however the gateway ends. Processes that the backend has left behind
// are killed.
func TestEnvMarker_UnrelatedProcessSurvives_F_SEC_12(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*rawClient){
		"F-SEC-12 end of file": func(gw *rawClient) { gw.stdin.Close() },
		"F-SEC-12 SIGTERM":     func(gw *rawClient) { gw.cmd.Process.Signal(syscall.SIGTERM) },
		"F-SEC-12 SIGKILL":     func(gw *rawClient) { gw.cmd.Process.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSetup(t, nil, orphaningBackend("one", ""), helperBackend("two", "mirror", ""))
			gw := s.start()
			gw.initialize("2025-11-25")
			listTools(t, gw)
			s.awaitOrphans(1)
			markers := make(map[string]bool)
			for _, p := range s.marker.processes() {
				env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.pid))
				for _, v := range bytes.Split(env, []byte{0}) {
					if marker, ok := bytes.CutPrefix(v, []byte("MCP_GATEWAY_CHILD=")); ok {
						markers[string(marker)] = true
					}
				}
			}
			if len(markers) != 2 {
				t.Fatalf("markers: %v", markers)
			}
			var unrelated []int
			for marker := range markers {
				// One keeps its parent, the other is an orphan in a session of its own.
				child := exec.Command("sleep", "1000")
				child.Env = []string{"MCP_GATEWAY_CHILD=" + marker}
				if err := child.Start(); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { child.Process.Kill(); child.Wait() })
				orphan := exec.Command("sh", "-c", `setsid sleep 1000 <&- >&- 2>&- & echo $!`)
				orphan.Env = append(os.Environ(), "MCP_GATEWAY_CHILD="+marker)
				out, err := orphan.Output()
				if err != nil {
					t.Fatal(err)
				}
				pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { syscall.Kill(pid, syscall.SIGKILL) })
				unrelated = append(unrelated, child.Process.Pid, pid)
			}
			end(gw)
			gw.exitCode(20 * time.Second)
			s.marker.requireNoProcesses(t, 5*time.Second)
			for _, pid := range unrelated {
				if state, _ := stat(pid); state == "" || state == "Z" {
					t.Errorf("a process that does not descend from the gateway was killed")
				}
			}
		})
	}
}
