package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"sync"
)

// A relay does the least possible work between a client and a server. The relays are the reference
// for gateways. If the client and the server use the same transport, a relay only copies bytes.

// serveRelay copies bytes between the stdio of this process and the stdio of a command.
func serveRelay(command []string) error {
	return withChild(command, func(in io.WriteCloser, out io.Reader) {
		var copying sync.WaitGroup
		copying.Go(func() { copyBytes(in, os.Stdin); in.Close() })
		copying.Go(func() { copyBytes(os.Stdout, out) })
		copying.Wait()
	})
}

func withChild(command []string, use func(in io.WriteCloser, out io.Reader)) error {
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
	use(in, out)
	in.Close()
	return cmd.Wait()
}

// copyBytes copies bytes without optimizations such as splice.
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

// serveProxy runs the reverse proxy of the standard library with two settings. The proxy keeps more
// than two idle connections, because otherwise most calls would dial. The proxy does not close the
// request body when the response begins, because a fast server responds before the proxy has read
// the end of the body, and the response would be lost.
func serveProxy(args []string) error {
	address, target, err := parseAddresses("proxy", args)
	if err != nil {
		return err
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: pooledTransport(),
	}
	return serveUntilEOF(address, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		proxy.ServeHTTP(w, r)
	}))
}

func pooledTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost, t.MaxIdleConns = 512, 512
	return t
}

func parseAddresses(role string, args []string) (listen string, target *url.URL, err error) {
	f := flag.NewFlagSet(role, flag.ExitOnError)
	to := f.String("to", "", "the server's `URL`")
	f.StringVar(&listen, "listen", "", "`address`")
	_ = f.Parse(args)
	target, err = url.Parse(*to)
	return listen, target, err
}

// serveUntilEOF serves HTTP until the parent closes stdin.
func serveUntilEOF(address string, h http.Handler) error {
	server := &http.Server{Addr: address, Handler: h}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = server.Shutdown(context.Background())
	}()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// serveStdioToHTTP posts each line to a server and writes the response as a line.
func serveStdioToHTTP(args []string) error {
	_, target, err := parseAddresses("poster", args)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: pooledTransport()}
	in := bufio.NewReaderSize(os.Stdin, 4<<20)
	var posts sync.WaitGroup
	defer posts.Wait()
	var out sync.Mutex
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return nil
		}
		posts.Go(func() {
			res, err := client.Post(target.String(), "application/json", bytes.NewReader(line))
			if err != nil {
				return
			}
			defer res.Body.Close()
			response, err := io.ReadAll(res.Body)
			if err == nil && len(response) > 0 {
				out.Lock()
				defer out.Unlock()
				_, _ = os.Stdout.Write(append(response, '\n'))
			}
		})
	}
}

// serveHTTPToStdio writes each posted message as a line to a command and responds with the line
// that has the same id.
func serveHTTPToStdio(args []string) error {
	address, command := args[0], args[1:]
	return withChild(command, func(in io.WriteCloser, out io.Reader) {
		var mu, writes sync.Mutex // guard waiting, and in
		waiting := make(map[string]chan []byte)
		go func() {
			lines := bufio.NewReaderSize(out, 4<<20)
			for {
				line, err := lines.ReadBytes('\n')
				if err != nil {
					return
				}
				mu.Lock()
				response := waiting[string(field(line, `"id":`))]
				delete(waiting, string(field(line, `"id":`)))
				mu.Unlock()
				if response != nil {
					response <- line
				}
			}
		}()
		_ = serveUntilEOF(address, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			line, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			id := field(line, `"id":`)
			response := make(chan []byte, 1)
			if id != nil {
				mu.Lock()
				waiting[string(id)] = response
				mu.Unlock()
			}
			writes.Lock()
			_, _ = in.Write(append(line, '\n'))
			writes.Unlock()
			if id == nil {
				w.WriteHeader(http.StatusAccepted)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(<-response)
		}))
	})
}
