package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
)

// serveBackend is an MCP server that answers with as little work as can be.
func serveBackend(tools int) error {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	var list bytes.Buffer
	for i := range tools {
		if i > 0 {
			list.WriteByte(',')
		}
		fmt.Fprintf(&list, `{"name":"%s_tool_%d","description":"%s","inputSchema":{"type":"object","properties":{"text":{"type":"string"},"limit":{"type":"integer","minimum":1}},"required":["text"]}}`,
			os.Getenv("BENCH_NAME"), i, bytes.Repeat([]byte("A tool to measure with. "), 12))
	}
	var out []byte
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return nil
		}
		id := field(line, `"id":`)
		if id == nil {
			continue
		}
		out = append(append(append(out[:0], `{"jsonrpc":"2.0","id":`...), id...), `,"result":`...)
		switch {
		case bytes.Contains(line, []byte(`"tools/call"`)):
			out = append(out, `{"content":[{"type":"text","text":"0123456789012345678901234567"}]}`...)
		case bytes.Contains(line, []byte(`"tools/list"`)):
			out = append(append(append(out, `{"tools":[`...), list.Bytes()...), `]}`...)
		default:
			out = append(out, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"bench","version":"1"}}`...)
		}
		if _, err := os.Stdout.Write(append(out, '}', '\n')); err != nil {
			return err
		}
	}
}

// field returns the number or string that follows a key.
func field(line []byte, key string) []byte {
	i := bytes.Index(line, []byte(key))
	if i < 0 {
		return nil
	}
	line = line[i+len(key):]
	return line[:bytes.IndexAny(line, ",}")]
}

// serveRelay copies bytes between its own stdio and a command's.
func serveRelay(command []string) error {
	cmd := exec.Command(command[0], command[1:]...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	var copying sync.WaitGroup
	copying.Go(func() { copyBytes(in, os.Stdin); in.Close() })
	copying.Go(func() { copyBytes(os.Stdout, out) })
	copying.Wait()
	return cmd.Wait()
}

// copyBytes reads and writes, and does nothing else.
func copyBytes(w io.Writer, r io.Reader) {
	buf := make([]byte, 64<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
