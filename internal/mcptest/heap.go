package mcptest

import "runtime"

// LiveHeap collects garbage and returns the bytes of all objects in use.
func LiveHeap() int64 {
	runtime.GC()
	runtime.GC() // frees what the first collection has removed from pools
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}
