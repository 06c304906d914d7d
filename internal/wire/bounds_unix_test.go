//go:build unix

package wire

import (
	"syscall"
	"testing"
)

// The text exceeds maxText. It is a memory mapping, which uses no memory until it is read.
func TestParseBoundsTheText(t *testing.T) {
	text, err := syscall.Mmap(-1, 0, maxText+1, syscall.PROT_READ,
		syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal("1 GiB of address space:", err)
	}
	defer syscall.Munmap(text)
	if _, err := Parse(text); err == nil ||
		err.Error() != "Parse error: byte 0: the text is longer than 1073741824 bytes" {
		t.Errorf("Parse: %v", err)
	}
	if Members(text, nil) || EachElement(text, nil) {
		t.Error("Members or EachElement accepts a text that is too long")
	}
}
