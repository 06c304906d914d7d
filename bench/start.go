package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	manyBackends = 20
	toolsOfEach  = 25
)

// starting measures how soon a gateway with many backends, whose catalogs it
// knows from an earlier run, answers its client.
func (p plan) starting() error {
	config := filepath.Join(p.dir, "many.yaml")
	text := fmt.Sprintf("state: %q\nlog: {level: error}\naudit: {file: %q}\nbackends:\n",
		filepath.Join(p.dir, "state"), filepath.Join(p.dir, "audit.jsonl"))
	for i := range manyBackends {
		text += fmt.Sprintf("  - {name: b%d, command: %q, args: [-backend, \"%d\"], env: {BENCH_NAME: b%d}}\n", i, p.self, toolsOfEach, i)
	}
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	var ups, hellos, lists []time.Duration
	memory := ""
	for i := range p.starts + 1 { // the first one writes the catalogs
		one, err := p.startOnce(config)
		if err != nil {
			return err
		}
		if i > 0 {
			ups, hellos, lists = append(ups, one.up), append(hellos, one.hello), append(lists, one.list)
		}
		memory = one.memory
	}
	fmt.Printf("start with %d backends, %d tools, their catalogs on disk: median of %d\n", manyBackends, manyBackends*toolsOfEach, p.starts)
	fmt.Printf("  process start → ping answered        %v\n", quantile(ups, 0.5))
	fmt.Printf("  initialize → its answer              %v\n", quantile(hellos, 0.5))
	fmt.Printf("  process start → complete tools/list  %v\n", quantile(lists, 0.5))
	fmt.Printf("  resident memory, all backends up     %s\n", memory)
	return nil
}

type once struct {
	up, list time.Duration // since the process was started
	hello    time.Duration // from the request to the answer
	memory   string
}

func (p plan) startOnce(config string) (o once, err error) {
	began := time.Now()
	cmd := exec.Command(p.gateway, "-c", config)
	cmd.Stderr = os.Stderr
	c, err := start(cmd)
	if err != nil {
		return o, err
	}
	defer c.end()
	if _, err := c.ask(ping); err != nil {
		return o, err
	}
	o.up = time.Since(began)
	asked := time.Now()
	if _, err := c.ask(hello); err != nil {
		return o, err
	}
	o.hello = time.Since(asked)
	if _, err := c.in.Write([]byte(ready)); err != nil {
		return o, err
	}
	tools, err := c.ask(list)
	if err != nil {
		return o, err
	}
	o.list = time.Since(began)
	if n := strings.Count(string(tools), `"inputSchema"`); n != manyBackends*toolsOfEach {
		return o, fmt.Errorf("the list has %d tools, not %d", n, manyBackends*toolsOfEach)
	}
	for i := range manyBackends { // a call waits until its backend is up
		if _, err := c.ask(fmt.Sprintf(call, i+2, fmt.Sprintf("b%d_tool_0", i))); err != nil {
			return o, err
		}
	}
	o.memory = resident(cmd.Process.Pid)
	return o, nil
}

// resident returns a process's resident memory, "unknown" where there is no
// /proc.
func resident(pid int) string {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for _, line := range strings.Split(string(status), "\n") {
		if kb, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			return strings.TrimSpace(kb)
		}
	}
	return "unknown"
}
