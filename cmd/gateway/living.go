package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// A birth tells a process from those that have had its number, or will. Where there is no /proc it
// is empty.
type birth struct {
	Space string `json:"space,omitempty"` // in which its number counts
	Boot  string `json:"boot,omitempty"`  // of the system
	Start string `json:"start,omitempty"` // in ticks after that
}

// birthOf returns the birth of a process in our own space, empty if there is none that runs.
func birthOf(pid int) birth {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return birth{}
	}
	rest := string(text)[strings.LastIndexByte(string(text), ')')+1:] // the name before may have anything in it
	fields := strings.Fields(rest)
	const state, start = 0, 19 // fields 3 and 22 of proc_pid_stat(5)
	if len(fields) <= start || fields[state] == "Z" {
		return birth{}
	}
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	space, _ := os.Readlink("/proc/self/ns/pid")
	return birth{space, strings.TrimSpace(string(boot)), fields[start]}
}

// A life names one process in a record that outlives it.
type life struct {
	PID   int   `json:"pid"`
	Birth birth `json:"birth,omitzero"`
}

// ownLife returns the life of this process, as JSON.
func ownLife() []byte {
	text, err := json.Marshal(life{os.Getpid(), birthOf(os.Getpid())})
	if err != nil {
		return nil
	}
	return text
}

// isOverLife reports whether the process of a record is known to have ended.
func isOverLife(text []byte) bool {
	var l life
	return json.Unmarshal(text, &l) == nil && l.PID > 0 && isOver(l.PID, l.Birth)
}

// isOver reports whether a process is known to have ended. In a container beside us it cannot be.
func isOver(pid int, b birth) bool {
	if here := birthOf(os.Getpid()); b != (birth{}) && here.Boot == b.Boot && here.Space != b.Space {
		return false
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		return true
	}
	defer p.Release()
	if err := p.Signal(syscall.Signal(0)); errors.Is(err, os.ErrProcessDone) || errors.Is(err, syscall.ESRCH) {
		return true
	}
	return b != (birth{}) && birthOf(pid) != b
}
