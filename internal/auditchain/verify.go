package auditchain

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"slices"
	"time"
)

// A ChainVerifier checks the links of the records of an audit file. Its memory does not depend on
// the size of the files or the length of lines. Use NewChainVerifier.
type ChainVerifier struct {
	report  func(Finding)
	wanted  []byte // the end of the chain that must occur; nil = none
	found   bool   // it occurred
	pending *Finding
	result  ChainResult

	at   position // of the line that is being read
	line lineSummary
	// since is the hash of all bytes since the beginning of the last linked record, sinceLong with
	// the read part of the current line if the line is long.
	since, sinceLong hash.Hash

	last     position      // of the last linked record
	lastSums []sum         // of the last linked record, and of others with its number
	before   sum           // prev of the record at last
	unlinked unlinkedLines // since the last linked record
}

type sum = [sha256.Size]byte

// A position is a line of a file.
type position struct {
	file string
	line int
	time string // "" = unknown
}

// unlinkedLines are consecutive lines without a link.
type unlinkedLines struct {
	number     int
	incomplete int // of these, the lines that are not records
	first      position
	sum        sum // of the last of them
}

// A ChainResult is the result of a verification.
type ChainResult struct {
	Records     int    `json:"records"`      // linked records
	First       uint64 `json:"first"`        // number of the first linked record; 0 = there is none
	Last        uint64 `json:"last"`         // number of the last linked record
	Head        string `json:"head"`         // value of prev that the next record would have
	Unlinked    int    `json:"unlinked"`     // lines without a link
	Problems    int    `json:"problems"`     // findings that are no notes
	BeforeFirst int    `json:"before_first"` // lines without a link before the first linked record
}

// NewChainVerifier returns a ChainVerifier that calls report for each finding. If head is not "",
// the files must contain the end of the chain at which ChainResult.Head was head. NewChainVerifier
// returns an error if head is not 64 hexadecimal digits.
func NewChainVerifier(head string, report func(Finding)) (*ChainVerifier, error) {
	v := &ChainVerifier{report: report, since: sha256.New(), line: lineSummary{hash: sha256.New()}}
	if head == "" {
		return v, nil
	}
	wanted, err := hex.DecodeString(head)
	if err != nil || len(wanted) != sha256.Size {
		return nil, errors.New("a head is 64 hexadecimal digits")
	}
	v.wanted = wanted
	return v, nil
}

// Read verifies the lines of the next file. An error of r is a finding.
func (v *ChainVerifier) Read(file string, r io.Reader) {
	v.at = position{file: file}
	in := bufio.NewReaderSize(r, 128<<10)
	for {
		chunk, err := in.ReadSlice('\n')
		text, ended := bytes.CutSuffix(chunk, []byte("\n"))
		ended = ended || err != bufio.ErrBufferFull && (len(chunk) > 0 || v.line.long)
		if ended || err == bufio.ErrBufferFull {
			v.add(text, ended)
		}
		switch {
		case err == io.EOF:
			return
		case err != nil && err != bufio.ErrBufferFull:
			v.Unreadable(file, err)
			return
		}
	}
}

// Unreadable reports that a file, or the rest of the file that was read last, cannot be read.
func (v *ChainVerifier) Unreadable(file string, err error) {
	v.find(unreadable, position{file: file}, "the file cannot be read to its end: %v", err)
}

// add processes a piece of a line.
func (v *ChainVerifier) add(text []byte, ended bool) {
	isLong := v.line.long || !ended
	if isLong && !v.line.long {
		v.line.long = true
		v.sinceLong, _ = v.since.(hash.Cloner).Clone() // never fails for SHA-256
		v.sinceLong.Write([]byte("\n"))
	}
	v.line.add(text)
	if isLong {
		v.sinceLong.Write(text)
	}
	if !ended {
		return
	}
	v.at.line++
	v.at.time = v.line.time()
	if number, prev, linked := parseLink(v.line.end); linked {
		v.linked(number, prev)
	} else if isLong {
		v.since = v.sinceLong
		v.unlinkedLine()
	} else {
		v.since.Write([]byte("\n"))
		v.since.Write(text)
		v.unlinkedLine()
	}
	if v.wanted != nil && !v.found {
		end := v.end()
		v.found = bytes.Equal(end[:], v.wanted)
	}
	v.line.reset()
}

// end returns the hash that the next link contains. There is at least one line.
func (v *ChainVerifier) end() (end sum) {
	switch {
	case v.result.Records == 0:
		return v.unlinked.sum
	case v.unlinked.number == 0:
		return v.lastSums[0]
	}
	v.since.Sum(end[:0])
	return end
}

func (v *ChainVerifier) unlinkedLine() {
	u := &v.unlinked
	if u.number == 0 {
		u.first = v.at
	}
	u.number++
	v.result.Unlinked++
	if !bytes.HasSuffix(v.line.end, []byte("}")) {
		u.incomplete++
	}
	u.sum = v.line.sum()
}

// A claimedLink is the value of prev in a record.
type claimedLink struct {
	isSet bool // prev is not ""
	sum   sum  // zero if it is not a hash
}

// linked checks a linked record. It makes the record the last one, unless the record is not at its
// place.
func (v *ChainVerifier) linked(number uint64, text []byte) {
	hash := v.line.sum()
	prev := claimedLink{isSet: len(text) > 0}
	if n, err := hex.Decode(prev.sum[:], text); err != nil || n != len(prev.sum) {
		prev.sum = sum{}
	}
	if v.result.Records == 0 {
		v.first(number, prev)
	} else if ok := v.follows(&number, prev, hash); !ok {
		return
	}
	v.result.Records++
	v.result.Last, v.last = number, v.at
	v.lastSums = append(v.lastSums[:0], hash)
	v.before = prev.sum
	v.unlinked = unlinkedLines{}
	v.since, v.line.hash = v.line.hash, v.since
}

// first checks the first linked record. Its previous record is unknown if older files were removed.
func (v *ChainVerifier) first(number uint64, prev claimedLink) {
	v.result.First, v.result.BeforeFirst = number, v.unlinked.number
	switch isFirst := number == 1; {
	case v.unlinked.number == 0:
	case isFirst && prev.sum == v.unlinked.sum:
	case isFirst:
		v.find(changed, v.at, "the line before the first linked record was changed, or lines "+
			"before it were removed or inserted")
	default:
		v.find(removed, v.at, "the records before record %d were removed, or the lines before it "+
			"were inserted", number)
	}
}

// follows checks a record after other linked records. It reports whether the record takes part in
// the chain. It corrects the number if the link proves that it was changed.
func (v *ChainVerifier) follows(claimed *uint64, prev claimedLink, hash sum) bool {
	number, last, between := *claimed, v.result.Last, v.unlinked.number
	afterLast := slices.Contains(v.lastSums, prev.sum)
	matches := between == 0 && afterLast || between > 0 && prev.sum == v.end()
	afterUnlinked := between > 0 && prev.sum == v.unlinked.sum
	switch {
	case matches && number == last+1:
		v.noteUnlinked()
	case matches:
		v.find(changed, v.at, "the record has the number %d instead of %d", number, last+1)
		*claimed = last + 1
	case number == 1 && (!prev.isSet || afterUnlinked):
		v.find(restarted, v.at, "the chain begins again: the gateway did not find the records "+
			"before, or the chain was forged from here")
	case number == last && slices.Contains(v.lastSums, hash):
		v.find(inserted, v.at, "the record is a copy of record %d at %s", last, v.last)
		return false
	case number == last && prev.sum == v.before:
		v.find(inserted, v.at, "record %d is there twice, with different contents: one was "+
			"inserted (the other is at %s)", last, v.last)
		if len(v.lastSums) < 4 {
			v.lastSums = append(v.lastSums, hash)
		}
		return false
	case number <= last:
		v.find(moved, v.at, "the record is not at its place after record %d: it was moved or "+
			"copied", last)
		return false
	case number > last+1 && uint64(between) == number-last-1:
		v.find(changed, v.unlinked.first, "%s changed: no link is left", lines(between))
	case number > last+1:
		v.find(removed, v.at, "%s removed before record %d", records(last+1, number-1), number)
	case between > 0 && afterLast:
		v.find(inserted, v.unlinked.first, "%s inserted after record %d", lines(between), last)
	case between > 0:
		v.find(changed, v.last, "record %d was changed, or lines between it and record %d "+
			"were changed, removed or inserted", last, number)
	default:
		v.find(changed, v.last, "record %d, or the link of record %d, was changed", last, number)
	}
	return true
}

// noteUnlinked notes lines without a link that the next link covers.
func (v *ChainVerifier) noteUnlinked() {
	u := v.unlinked
	if u.incomplete > 0 {
		v.find(incomplete, u.first, "%s incomplete: the gateway ended, or the disk was full, "+
			"while it wrote", lines(u.incomplete))
	}
	if n := u.number - u.incomplete; n > 0 {
		v.find(notLinked, u.first, "%s written by a gateway without audit.chain; a later record "+
			"proves that they are unchanged since", lines(n))
	}
}

// End reports what is wrong at the end, and returns the result.
func (v *ChainVerifier) End() ChainResult {
	if v.result.Records+v.result.Unlinked > 0 {
		end := v.end()
		v.result.Head = hex.EncodeToString(end[:])
	}
	if u := v.unlinked; v.result.Records > 0 {
		if u.incomplete > 0 {
			v.find(incomplete, u.first, "%s incomplete: the gateway ended, or the disk was "+
				"full, while it wrote", lines(u.incomplete))
		}
		if n := u.number - u.incomplete; n > 0 {
			v.find(inserted, u.first, "%s inserted, or written by a gateway without audit.chain",
				lines(n))
		}
	}
	if v.wanted != nil && !v.found {
		v.find(noHead, v.last, "no record has the hash %x: records up to it were changed, "+
			"or records at the end were removed", v.wanted)
	}
	v.flush()
	return v.result
}

// A lineSummary keeps the parts of a line that are needed.
type lineSummary struct {
	begin, end []byte
	hash       hash.Hash
	long       bool // the line is longer than the buffer of the reader
}

const timeSize = 48 // bytes at the beginning of a line that contain its time

func (l *lineSummary) add(text []byte) {
	l.hash.Write(text)
	if room := timeSize - len(l.begin); room > 0 {
		l.begin = append(l.begin, text[:min(room, len(text))]...)
	}
	l.end = append(l.end, text[max(0, len(text)-linkSize):]...)
	if extra := len(l.end) - linkSize; extra > 0 {
		l.end = append(l.end[:0], l.end[extra:]...)
	}
}

func (l *lineSummary) reset() {
	l.begin, l.end, l.long = l.begin[:0], l.end[:0], false
	l.hash.Reset()
}

func (l *lineSummary) sum() (hash sum) {
	l.hash.Sum(hash[:0])
	return hash
}

func (l *lineSummary) time() string {
	text, ok := bytes.CutPrefix(l.begin, []byte(`{"time":"`))
	end := bytes.IndexByte(text, '"')
	if !ok || end < 0 {
		return ""
	}
	if _, err := time.Parse(time.RFC3339Nano, string(text[:end])); err != nil {
		return ""
	}
	return string(text[:end])
}
