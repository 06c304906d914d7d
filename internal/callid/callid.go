// Package callid numbers the calls of a process and formats the numbers as call ids. The number of
// a call costs an atomic addition; its text is made only where it is shown.
package callid

import (
	"crypto/rand"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// prefixSize is the number of characters that tell processes apart: two of a million processes have
// the same prefix with a probability of 0.16. Ids of the same prefix and number are not confused in
// practice, because their records have different times.
const prefixSize = 8

var last atomic.Uint64 // the number of the last call of this process

// Next returns the number of a new call: 1, 2 and so on. It may be called concurrently.
func Next() uint64 { return last.Add(1) }

// Prefix returns the prefix of the ids of this process: random digits and lower-case
// letters.
var Prefix = sync.OnceValue(func() string {
	text := make([]byte, prefixSize)
	rand.Read(text) // never fails
	for i, b := range text {
		text[i] = "0123456789abcdefghijklmnopqrstuvwxyz"[b%36]
	}
	return string(text)
})

// Append appends the call id of call seq of this process, for example k3f9q2x7-1a7: the prefix of
// the process, and the number in base 36.
func Append(b []byte, seq uint64) []byte {
	b = append(append(b, Prefix()...), '-')
	return strconv.AppendUint(b, seq, 36)
}

// Text returns the text that Append appends.
func Text(seq uint64) string { return string(Append(nil, seq)) }

// Parse returns the number of a call of this process from its call id. It returns false for any
// other text.
func Parse(id string) (seq uint64, ok bool) {
	number, ok := strings.CutPrefix(id, Prefix()+"-")
	if !ok {
		return 0, false
	}
	seq, err := strconv.ParseUint(number, 36, 64)
	return seq, err == nil && Text(seq) == id
}
