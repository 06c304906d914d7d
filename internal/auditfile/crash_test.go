package auditfile

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// crashOptions are the options of the processes that are killed.
func crashOptions(chain bool) Options {
	return Options{MaxSize: 8 << 10, Keep: Keep{Files: MaxFiles}, Compress: Zstd, Chain: chain}
}

// appendForever appends numbered lines until the process is killed. After each line it writes the
// number to stdout.
func appendForever(path, name string, chain bool) error {
	f, err := OpenFile(path, crashOptions(chain), quiet)
	if err != nil {
		return err
	}
	go func() { _ = f.Run(context.Background()) }()
	for i := 0; ; i++ {
		text := fmt.Sprintf(`{"x":"%s %d %s"}`+"\n", name, i, strings.Repeat("x", i%300))
		if _, err := io.WriteString(f, text); err != nil {
			return err
		}
		fmt.Println(i)
	}
}

// Processes that append, rotate and compress together are killed at random. No line is lost or
// there twice, except for the last line of a process, which may be missing or incomplete; and the
// chain is complete.
func TestKilledProcesses(t *testing.T) {
	t.Parallel()
	for _, chain := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "audit.jsonl")
		acknowledged := make(map[string]int) // number of lines by process
		for round := range 2 {
			results := make(chan map[string]int)
			const processes = 3
			for i := range processes {
				name := fmt.Sprintf("p%d-%d", round, i)
				life := 30*time.Millisecond + time.Duration(rand.IntN(120))*time.Millisecond
				go func() { results <- map[string]int{name: killed(t, path, name, chain, life)} }()
			}
			for range processes {
				for name, n := range <-results {
					acknowledged[name] = n
				}
			}
		}
		checkLines(t, path, acknowledged)
		if chain {
			found, r := verify(t, path)
			if r.Problems > 0 || r.Records == 0 {
				t.Errorf("%v, %+v", found, r)
			}
		}
		f := reopened(t, path, crashOptions(chain))
		if err := (&compressor{path, &f.lock, Zstd}).run(t.Context()); err != nil {
			t.Error(err)
		}
		checkLines(t, path, acknowledged)
		if got := names(path); strings.Contains(got, ".tmp") {
			t.Errorf("files: %s", got)
		}
	}
}

// killed starts a process that appends lines, kills it after life, and returns the number of lines
// that the process has reported.
func killed(t *testing.T, path, name string, chain bool, life time.Duration) int {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "LOGS_TEST_FOREVER="+path, "LOGS_TEST_NAME="+name,
		fmt.Sprintf("LOGS_TEST_CHAIN=%v", chain))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Error(err)
		return 0
	}
	if err := cmd.Start(); err != nil {
		t.Error(err)
		return 0
	}
	lines, n := bufio.NewScanner(out), 0
	for lines.Scan() {
		if n == 0 {
			time.AfterFunc(life, func() { _ = cmd.Process.Kill() })
		}
		n++
	}
	_ = cmd.Wait()
	return n
}

// checkLines checks that each acknowledged line is in the files exactly once.
func checkLines(t *testing.T, path string, acknowledged map[string]int) {
	t.Helper()
	seen := make(map[string]int)
	files, err := Files(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		r, err := decompressed(file, bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for line := range strings.Lines(string(text)) {
			var who string
			var i int
			if _, err := fmt.Sscanf(line, `{"x":"%s %d`, &who, &i); err == nil {
				seen[fmt.Sprint(who, " ", i)]++
			}
		}
	}
	missing := 0
	for who, n := range acknowledged {
		if n == 0 {
			t.Errorf("process %s has written nothing", who)
		}
		for i := range n {
			if seen[fmt.Sprint(who, " ", i)] == 0 {
				missing++
			}
		}
	}
	for line, n := range seen {
		if n > 1 {
			t.Errorf("line %s is there %d times", line, n)
		}
	}
	if missing > 0 {
		t.Errorf("%d lines of %v are missing", missing, acknowledged)
	}
}
