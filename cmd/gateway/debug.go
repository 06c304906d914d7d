package main

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"sync"
)

// debugEnv names a Unix socket at which the gateway tells what it takes, for whoever
// tests it: see docs/reliability.md. It is no flag and no key of the configuration, for
// nobody else needs it.
const debugEnv = "GATEWAY_DEBUG"

// A memoryUse is what the gateway takes when what is no longer used was collected.
type memoryUse struct {
	Goroutines int    `json:"goroutines"`
	Heap       uint64 `json:"heap"` // bytes
}

// serveDebug serves / (a footprint), /goroutines (where they stand, as text) and /heap (for go tool pprof) at the
// socket, if the environment names one, until end is called.
func (a *app) serveDebug() (end func()) {
	path := os.Getenv(debugEnv)
	if path == "" {
		return func() {}
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		a.log.Error("no debugging", "err", err)
		return func() {}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		debug.FreeOSMemory() // collects, and gives back
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
		_ = server.Close() // whoever asks and does not read must not keep us
		serving.Wait()
	}
}
