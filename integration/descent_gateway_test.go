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

// A process that has the mark of a backend in its environment, but does not descend from the gateway,
// is not ended, whatever ends the gateway. What the backend has left behind is.
func TestMarkAloneEndsNothing_F_SEC_12(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*rawClient){
		"F-SEC-12 end of file": func(gw *rawClient) { gw.stdin.Close() },
		"F-SEC-12 SIGTERM":     func(gw *rawClient) { gw.cmd.Process.Signal(syscall.SIGTERM) },
		"F-SEC-12 SIGKILL":     func(gw *rawClient) { gw.cmd.Process.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSetup(t, nil, litter("one", ""), actor("two", "mirror", ""))
			gw := s.start()
			gw.greet("2025-11-25")
			listTools(t, gw)
			s.littered(1)
			marks := make(map[string]bool)
			for _, p := range s.mark.processes() {
				env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.pid))
				for _, v := range bytes.Split(env, []byte{0}) {
					if mark, ok := bytes.CutPrefix(v, []byte("MCP_GATEWAY_CHILD=")); ok {
						marks[string(mark)] = true
					}
				}
			}
			if len(marks) != 2 {
				t.Fatalf("marks: %v", marks)
			}
			var strangers []int
			for mark := range marks {
				// One has its parent, the other has lost it and has a session of its own.
				child := exec.Command("sleep", "1000")
				child.Env = []string{"MCP_GATEWAY_CHILD=" + mark}
				if err := child.Start(); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { child.Process.Kill(); child.Wait() })
				orphan := exec.Command("sh", "-c", `setsid sleep 1000 <&- >&- 2>&- & echo $!`)
				orphan.Env = append(os.Environ(), "MCP_GATEWAY_CHILD="+mark)
				out, err := orphan.Output()
				if err != nil {
					t.Fatal(err)
				}
				pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { syscall.Kill(pid, syscall.SIGKILL) })
				strangers = append(strangers, child.Process.Pid, pid)
			}
			end(gw)
			gw.exitCode(20 * time.Second)
			s.mark.mustBeGone(t, 5*time.Second)
			for _, pid := range strangers {
				if state, _ := stat(pid); state == "" || state == "Z" {
					t.Errorf("a process that does not descend from the gateway was ended")
				}
			}
		})
	}
}
