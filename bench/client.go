package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// A client drives one process over its stdio.
type client struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func start(cmd *exec.Cmd) (*client, error) {
	c := &client{cmd: cmd}
	var err error
	if c.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewReaderSize(out, 1<<20)
	return c, cmd.Start()
}

// ask writes a request and returns the line that comes back.
func (c *client) ask(request string) ([]byte, error) {
	if _, err := io.WriteString(c.in, request); err != nil {
		return nil, err
	}
	line, err := c.out.ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("no answer to %.60s: %w", request, err)
	}
	if bytes.Contains(line, []byte(`"error"`)) {
		return nil, fmt.Errorf("%.60s was answered with %.200s", request, line)
	}
	return line, nil
}

const (
	ping  = `{"jsonrpc":"2.0","id":"up","method":"ping"}` + "\n"
	hello = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}` + "\n"
	ready = `{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n"
	list  = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}` + "\n"
	call  = `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"%s","arguments":{"text":"0123456789012345678901234567"}}}` + "\n"
)

// initialize shakes hands and waits until a tool can be called.
func (c *client) initialize() error {
	if _, err := c.ask(hello); err != nil {
		return err
	}
	if _, err := io.WriteString(c.in, ready); err != nil {
		return err
	}
	_, err := c.ask(list)
	return err
}

// calls makes n calls, one after the other, and returns how long each took.
func (c *client) calls(n int, tool string) ([]time.Duration, error) {
	took := make([]time.Duration, 0, n)
	for i := range n {
		request := fmt.Sprintf(call, i+2, tool)
		began := time.Now()
		if _, err := c.ask(request); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
	}
	return took, nil
}

// end closes the process's stdin and waits for it, killing it after a while.
func (c *client) end() error {
	c.in.Close()
	kill := time.AfterFunc(10*time.Second, func() { _ = c.cmd.Process.Signal(os.Kill) })
	defer kill.Stop()
	return c.cmd.Wait()
}
