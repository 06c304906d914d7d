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
}

// The text exceeds maxComposedText. The response with this text becomes an error.
func TestComposedTextBound(t *testing.T) {
	text, err := syscall.Mmap(-1, 0, maxComposedText+1, syscall.PROT_READ,
		syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal("2 GiB of address space:", err)
	}
	defer syscall.Munmap(text)
	if Members(text, nil) || EachElement(text, nil) {
		t.Error("Members or EachElement accepts a text that is too long")
	}
	const want = `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,` +
		`"message":"The response is too long to be forwarded"}}`
	short := parseOrFail(t, `{"jsonrpc":"2.0","id":1,"result":{}}`)
	for what, m := range map[string]Message{
		"NewResult": NewResult("1", text), "Splice": short.Splice(Edit{PartResult, text}),
	} {
		if string(m.Raw()) != want || m.Kind() != Response {
			t.Errorf("%s: %s", what, m.Raw())
		}
	}
}
