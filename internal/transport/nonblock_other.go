//go:build !unix

package transport

import (
	"io"
	"os"
)

// tryWriter returns nil, because every write may block on this system.
func tryWriter(*os.File) func([]byte) (int, error) { return nil }

// FastReader returns f.
func FastReader(f *os.File) io.Reader { return f }

// ownPollable returns f.
func ownPollable(f *os.File) (own *os.File, restore func()) { return f, func() {} }
