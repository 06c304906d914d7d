// Package auditchain links the records of an audit file: each record contains its number and the
// SHA-256 of the record before. ChainVerifier reports records that were changed, removed or
// inserted later. The package opens no files.
//
// A linked record is a line of JSON whose last attributes are seq and prev:
//
//	{"time":"…","level":"INFO","msg":"call",…,"seq":7,"prev":"9f86d081…"}
//
// seq is the number of the record; the first is 1. prev is the SHA-256, as 64 hexadecimal digits,
// of the exact bytes of the previous line, without its line feed. If the previous line has no
// link, because a crash or a full disk has cut it, or because a gateway without audit.chain has
// written it, prev covers more: all bytes from the beginning of the last linked record, including
// the line feeds between the lines. prev is "" if there is no previous line.
//
// The lines of several files are one sequence. A file that does not end in a line feed ends in a
// line nevertheless.
package auditchain

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
)

// A End is the end of a chain: what the next record has to contain. The zero value is the end of
// an empty chain.
type End struct {
	Number uint64 // number of the last linked record; 0 = there is none
	hash   [sha256.Size]byte
	known  bool // there is a previous line
}

// Hash returns the value of prev in the next record.
func (l End) Hash() string {
	if !l.known {
		return ""
	}
	return hex.EncodeToString(l.hash[:])
}

// EndAfter returns the End after the lines in tail, the end of an audit file. If whole is false,
// tail begins within a line, or there are lines before. ok is false if tail does not contain a
// linked record, and is not the whole file; then the End covers the last line, or is zero if its
// beginning is not in tail.
func EndAfter(tail []byte, whole bool) (l End, ok bool) {
	tail = bytes.TrimSuffix(tail, []byte("\n"))
	end := len(tail)
	for end > 0 {
		begin := bytes.LastIndexByte(tail[:end], '\n') + 1
		if begin == 0 && !whole {
			break
		}
		if number, _, linked := parseLink(tail[begin:end]); linked {
			return End{number, sha256.Sum256(tail[begin:]), true}, true
		}
		end = begin - 1
	}
	begin := bytes.LastIndexByte(tail, '\n') + 1
	if begin == 0 && !whole || len(tail) == 0 {
		return End{}, whole
	}
	return End{0, sha256.Sum256(tail[begin:]), true}, whole
}

// Append appends lines to dst, each with its link, and updates l. lines are JSON objects, each with
// an attribute and a line feed.
func (l *End) Append(dst, lines []byte) []byte {
	for line := range bytes.Lines(lines) {
		begin := len(dst)
		dst = append(slices.Grow(dst, len(line)+linkSize), bytes.TrimSuffix(line, []byte("}\n"))...)
		dst = l.appendLink(dst)
		l.Number++
		l.hash, l.known = sha256.Sum256(dst[begin:]), true
		dst = append(dst, '\n')
	}
	return dst
}

const (
	seqKey  = `,"seq":`
	prevKey = `,"prev":"`
	linkEnd = `"}`
	// linkSize is the number of bytes of the longest link.
	linkSize = len(seqKey) + 20 + len(prevKey) + 2*sha256.Size + len(linkEnd)
)

func (l *End) appendLink(dst []byte) []byte {
	dst = strconv.AppendUint(append(dst, seqKey...), l.Number+1, 10)
	dst = append(dst, prevKey...)
	if l.known {
		dst = hex.AppendEncode(dst, l.hash[:])
	}
	return append(dst, linkEnd...)
}

// parseLink returns the link at the end of a line. Text in a record cannot look like a link: its
// quotes are escaped.
func parseLink(line []byte) (number uint64, prev []byte, ok bool) {
	end := line[max(0, len(line)-linkSize):]
	end, ok = bytes.CutSuffix(end, []byte(linkEnd))
	at := bytes.LastIndex(end, []byte(prevKey))
	if !ok || at < 0 {
		return 0, nil, false
	}
	prev = end[at+len(prevKey):]
	if len(prev) != 0 && len(prev) != 2*sha256.Size {
		return 0, nil, false
	}
	end = end[:at]
	at = bytes.LastIndex(end, []byte(seqKey))
	if at < 0 {
		return 0, nil, false
	}
	number, err := strconv.ParseUint(string(end[at+len(seqKey):]), 10, 64)
	return number, prev, err == nil && number > 0
}
