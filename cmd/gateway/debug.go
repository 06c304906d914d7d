package main

import (
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"sync"
)

// debugEnv is the environment variable with the path of a Unix socket at which the gateway reports
// its memory use (see docs/reliability.md). There is no flag or configuration key, because only
// tests need the socket.
const debugEnv = "GATEWAY_DEBUG"

// A memoryUse is the use of memory and goroutines after a garbage collection.
type memoryUse struct {
	Goroutines int    `json:"goroutines"`
	Heap       uint64 `json:"heap"` // bytes
}

// serveDebug serves / (a memoryUse), /goroutines (stacks as text) and /heap (a profile for go tool
// pprof) at the socket that debugEnv names, until end is called. It serves nothing if debugEnv is
// not set, or if it cannot listen at the socket, which it logs.
func serveDebug(log *slog.Logger) (end func()) {
	path := os.Getenv(debugEnv)
	if path == "" {
		return func() {}
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		log.Error("debug socket not available", "err", err)
		return func() {}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		debug.FreeOSMemory() // collects garbage and returns memory
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		_ = json.NewEncoder(w).Encode(memoryUse{runtime.NumGoroutine(), m.HeapAlloc})
	})
	mux.HandleFunc("GET /goroutines", func(w http.ResponseWriter, _ *http.Request) {
		_ = pprof.Lookup("goroutine").WriteTo(w, 1)
	})
	mux.HandleFunc("GET /heap", func(w http.ResponseWriter, _ *http.Request) {
		_ = pprof.Lookup("heap").WriteTo(w, 0)
	})
	server := &http.Server{Handler: mux}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(ln) })
	return func() {
		_ = server.Close() // unlike Shutdown, also ends connections of clients that do not read
		serving.Wait()
	}
}
