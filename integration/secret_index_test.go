//go:build unix

package integration

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
)

// A knownSecret is a secret of a test, without its value.
type knownSecret struct {
	test, name string
	permitted  secretPlace // where it may be, and in the places before it
}

// A secretPlace is a place where a configuration can have a secret on purpose.
type secretPlace int

const (
	nowhere       secretPlace = iota
	inEnvironment             // of a process
	inArguments               // in the command line of a process
	elsewhere                 // in a log, a file or an output: no secret is permitted there
)

// A secretPart is a text that shows a secret: the secret, or its beginning or end, in one encoding.
type secretPart struct {
	text   string
	secret *knownSecret
}

// A secretIndex finds parts of many secrets in one pass over a text.
type secretIndex struct {
	values map[string]bool
	parts  map[uint32][]secretPart           // by their first four bytes
	filter [1 << indexFilterBits / 64]uint64 // hashes of the keys of parts
}

const (
	indexFilterBits = 20
	// minSecret is the length of the shortest secrets, in bytes. Shorter texts appear by chance.
	minSecret = 8
	// partLength is the length of the beginning and the end of a longer secret.
	partLength = 16
)

func newSecretIndex() *secretIndex {
	return &secretIndex{values: make(map[string]bool), parts: make(map[uint32][]secretPart)}
}

// add adds a value. Values that are known or too short change nothing.
func (x *secretIndex) add(value string, secret *knownSecret) {
	if len(value) < minSecret || x.values[value] {
		return
	}
	x.values[value] = true
	for _, text := range partsOf(value) {
		key := binary.LittleEndian.Uint32([]byte(text))
		x.parts[key] = append(x.parts[key], secretPart{text, secret})
		h := hashKey(key)
		x.filter[h/64] |= 1 << (h % 64)
	}
}

func hashKey(key uint32) uint32 { return key * 2654435761 >> (32 - indexFilterBits) }

// find returns the parts that text contains, one for each secret, with the position of the first.
func (x *secretIndex) find(text []byte) map[*knownSecret]int {
	var found map[*knownSecret]int
	for i := 0; i+4 <= len(text); i++ {
		key := binary.LittleEndian.Uint32(text[i:])
		if h := hashKey(key); x.filter[h/64]&(1<<(h%64)) == 0 {
			continue
		}
		for _, p := range x.parts[key] {
			if len(text)-i < len(p.text) || string(text[i:i+len(p.text)]) != p.text {
				continue
			}
			if found == nil {
				found = make(map[*knownSecret]int)
			}
			if _, known := found[p.secret]; !known {
				found[p.secret] = i
			}
		}
	}
	return found
}

// partsOf returns the texts that show a value. The parts of a JWT are those of its signature,
// because JWTs begin alike; a JWT without a signature is found as a whole.
func partsOf(value string) []string {
	if strings.HasPrefix(value, "eyJ") && strings.Count(value, ".") == 2 {
		signature := value[strings.LastIndexByte(value, '.')+1:]
		if len(signature) < minSecret {
			return []string{value}
		}
		value = signature
	}
	parts := []string{head(value), value[max(0, len(value)-partLength):]}
	for _, form := range encodings(value[:min(len(value), 4*partLength)]) {
		if part := head(form); len(part) >= minSecret {
			parts = append(parts, part)
		}
	}
	slices.Sort(parts)
	return slices.Compact(parts)
}

func head(text string) string { return text[:min(len(text), partLength)] }

// encodings returns a value in the forms in which logs and files may have it. Those of base64 begin
// with the first character that only depends on the value, for each number of bytes in front of the
// value in the encoded text.
func encodings(value string) []string {
	quoted, _ := json.Marshal(value) // a string has no error
	escaped := strings.Trim(string(quoted), `"`)
	plain := strings.NewReplacer(`\u0026`, "&", `\u003c`, "<", `\u003e`, ">").Replace(escaped)
	twice, _ := json.Marshal(plain)
	twiceEscaped, _ := json.Marshal(escaped)
	forms := []string{
		url.QueryEscape(value), url.PathEscape(value), url.UserPassword("", value).String()[1:],
		escaped, plain, strings.Trim(string(twice), `"`),
		strings.Trim(string(twiceEscaped), `"`), hex.EncodeToString([]byte(value)),
	}
	for before := range 3 {
		bits := 8 * (before + len(value))
		text := base64.StdEncoding.EncodeToString(append(make([]byte, before), value...))
		text = text[(8*before+5)/6 : bits/6]
		forms = append(forms, text, strings.NewReplacer("+", "-", "/", "_").Replace(text))
	}
	return forms
}
