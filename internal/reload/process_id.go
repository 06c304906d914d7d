package reload

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// A ProcessStart distinguishes a process from earlier and later ones with the same PID. The zero
// value means unknown, as on systems without /proc.
type ProcessStart struct {
	PIDNamespace string `json:"space,omitempty"` // link target of /proc/self/ns/pid
	BootID       string `json:"boot,omitempty"`
	Ticks        string `json:"start,omitempty"` // start time in clock ticks since boot
}

// startOf returns the start of a process in the PID namespace of this process. The result is zero
// if there is no such process, or if it is a zombie.
func startOf(pid int) ProcessStart {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ProcessStart{}
	}
	// The name of the process, in parentheses, may contain any character.
	rest := string(text)[strings.LastIndexByte(string(text), ')')+1:]
	fields := strings.Fields(rest)
	const state, start = 0, 19 // fields 3 and 22 of proc_pid_stat(5)
	if len(fields) <= start || fields[state] == "Z" {
		return ProcessStart{}
	}
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	namespace, _ := os.Readlink("/proc/self/ns/pid")
	return ProcessStart{namespace, strings.TrimSpace(string(boot)), fields[start]}
}

// A processID identifies a process in a record that outlives it.
type processID struct {
	PID   int          `json:"pid"`
	Start ProcessStart `json:"birth,omitzero"`
}

// OwnProcess returns the identity of this process, as JSON.
func OwnProcess() []byte {
	text, err := json.Marshal(processID{os.Getpid(), startOf(os.Getpid())})
	if err != nil {
		return nil
	}
	return text
}

// ProcessExited reports whether a process is known to have exited. Its identity is the result of
// [OwnProcess] in that process.
func ProcessExited(identity []byte) bool {
	var id processID
	return json.Unmarshal(identity, &id) == nil && id.PID > 0 && hasExited(id.PID, id.Start)
}

// hasExited reports whether a process is known to have exited. It reports false for a process in
// another PID namespace of this system, such as a container, because the state of such a process is
// unknown.
func hasExited(pid int, start ProcessStart) bool {
	own := startOf(os.Getpid())
	isKnown := start != ProcessStart{}
	if isKnown && own.BootID == start.BootID && own.PIDNamespace != start.PIDNamespace {
		return false
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		return true
	}
	defer p.Release()
	err = p.Signal(syscall.Signal(0))
	if errors.Is(err, os.ErrProcessDone) || errors.Is(err, syscall.ESRCH) {
		return true
	}
	return isKnown && startOf(pid) != start
}
