//go:build unix

package main

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

func discardLog() *log.Logger { return log.New(io.Discard, "", 0) }

// markEnv is the environment variable with the mark of all started processes. Unlike the parent,
// the process group and the session, it is the same for every descendant.
const markEnv = "CHAOS_MARK"

type process struct {
	pid  int
	args string
}

func (p process) String() string { return fmt.Sprintf("%d: %s", p.pid, p.args) }

// withMark returns the live processes with a mark; none on systems without /proc.
func withMark(mark string) (found []process) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		if !hasMark(pid, mark) {
			continue
		}
		args, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		found = append(found, process{pid,
			strings.ReplaceAll(strings.TrimRight(string(args), "\x00"), "\x00", " ")})
	}
	return found
}

// hasMark reports whether the environment of the process contains the mark.
func hasMark(pid int, mark string) bool {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	entry := []byte(markEnv + "=" + mark)
	return err == nil &&
		slices.ContainsFunc(bytes.Split(env, []byte{0}),
			func(v []byte) bool { return bytes.Equal(v, entry) })
}

// A footprint is the resource usage of the gateway.
type footprint struct {
	Goroutines  int    `json:"goroutines"`
	Heap        uint64 `json:"heap"` // bytes, after a collection
	RSS         uint64 `json:"rss"`  // bytes
	Descriptors int    `json:"descriptors"`
	Processes   int    `json:"processes"` // including the gateway
	Zombies     int    `json:"zombies"`

	CPU time.Duration `json:"cpu"` // processor time used so far, including ended children
}

// cpu returns the processor time of a process, and that of its ended children.
func cpu(pid int) (own, children time.Duration) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(text), ") ")
	for i, field := range strings.Fields(rest) {
		n, _ := strconv.Atoi(field)
		switch i {
		case 11, 12:
			own += time.Duration(n) * 10 * time.Millisecond
		case 13, 14:
			children += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return own, children
}

// processorTimes contains the processor times of the gateway, of its ended children, of this
// program, and of all processes of the machine.
type processorTimes struct{ gateway, ended, chaos, machine time.Duration }

// since returns the processor times since before.
func (k processorTimes) since(before processorTimes) processorTimes {
	return processorTimes{k.gateway - before.gateway, k.ended - before.ended,
		k.chaos - before.chaos, k.machine - before.machine}
}

// zombies returns the number of zombie children of a process.
func zombies(parent int) (n int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, _ := os.ReadFile(path)
		_, rest, ok := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		if ok && len(fields) > 1 && fields[0] == "Z" && fields[1] == strconv.Itoa(parent) {
			n++
		}
	}
	return n
}
