package backends

import (
	"testing"
	"unsafe"
)

// A call takes no more memory than without the field for traces: 576 bytes are a size class of Go.
func TestSizeOfACall(t *testing.T) {
	if n := unsafe.Sizeof(queuedCall{}); n > 576 {
		t.Errorf("a queuedCall has %d bytes", n)
	}
}
