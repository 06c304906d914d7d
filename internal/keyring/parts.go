package keyring

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	library "github.com/zalando/go-keyring"
)

// A value of at most partSize bytes is the content of one item. A longer value is stored in parts:
// the item of its name, the head, contains the random id, the number and the checksum of the parts,
// and each part is an item with the account NAME#ID.N. A new value has parts of its own; the parts
// of the old value are deleted after the head has been replaced, so that a reader finds a complete
// value.
const (
	// partSize is the largest content of an item in bytes: Windows stores 2,560 bytes; macOS reads
	// a command line of 4,096 bytes, which contains the content in Base64 and the name.
	partSize = 2000
	partMark = '#'
	headMark = "mcp-gateway-parts:" // prefix of a head, and of no other item
)

// head describes the parts of a value.
type head struct {
	id    string // of the value's parts, random
	count int
	sum   string // SHA-256 of the value, hexadecimal
}

func (h head) String() string {
	return headMark + h.id + ":" + strconv.Itoa(h.count) + ":" + h.sum
}

// parseHead parses the content of an item. ok is false if the item contains a value itself.
func parseHead(content string) (h head, ok bool) {
	text, ok := strings.CutPrefix(content, headMark)
	if !ok {
		return head{}, false
	}
	fields := strings.Split(text, ":")
	if len(fields) != 3 {
		return head{}, true
	}
	h = head{id: fields[0], sum: fields[2]}
	if n, err := strconv.Atoi(fields[1]); err == nil && n <= MaxValue/partSize+1 {
		h.count = n
	}
	return h, true
}

// account returns the account of part i of the value of a name.
func (h head) account(name string, i int) string {
	return name + string(partMark) + h.id + "." + strconv.Itoa(i)
}

// get reads a value. The Secret Service returns an error for an item that is replaced between its
// search and its read, and the parts of a value that is replaced are deleted. Therefore get tries
// again after such errors.
func get(name string) (value string, err error) {
	const attempts = 5
	for range attempts {
		value, err = read(name)
		h, parts := parseHead(value)
		if err == nil && parts {
			value, err = h.read(name)
		}
		retry := errors.Is(err, errIncomplete) ||
			errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrLocked)
		if !retry {
			break
		}
	}
	return value, err
}

// errIncomplete is the error for a value that lacks parts.
var errIncomplete = errors.New("the value in the keyring is incomplete; set it again")

// read reads the content of an item.
func read(account string) (string, error) {
	content, err := library.Get(service, account)
	return content, translate(err)
}

// read reads the parts.
func (h head) read(name string) (string, error) {
	var value strings.Builder
	for i := range h.count {
		part, err := read(h.account(name, i))
		if errors.Is(err, ErrNotFound) {
			return "", errIncomplete
		}
		if err != nil {
			return "", err
		}
		value.WriteString(part)
	}
	if sum := sha256.Sum256([]byte(value.String())); hex.EncodeToString(sum[:]) != h.sum {
		return "", errIncomplete
	}
	return value.String(), nil
}

func set(name, value string) error {
	old, err := library.Get(service, name)
	if err != nil && !errors.Is(err, library.ErrNotFound) {
		return translate(err)
	}
	content := value
	if len(value) > partSize || strings.HasPrefix(value, headMark) {
		h, err := writeParts(name, value)
		if err != nil {
			return err
		}
		content = h.String()
	}
	if err := library.Set(service, name, content); err != nil {
		return translate(err)
	}
	return removeParts(name, old)
}

// writeParts stores the parts of a value.
func writeParts(name, value string) (head, error) {
	id := make([]byte, 8)
	rand.Read(id)
	sum := sha256.Sum256([]byte(value))
	h := head{id: hex.EncodeToString(id), sum: hex.EncodeToString(sum[:])}
	for ; value != ""; h.count++ {
		n := min(partSize, len(value))
		if err := library.Set(service, h.account(name, h.count), value[:n]); err != nil {
			return head{}, errors.Join(translate(err), removeParts(name, h.String()))
		}
		value = value[n:]
	}
	return h, nil
}

func remove(name string) error {
	content, err := library.Get(service, name)
	if err != nil {
		return translate(err)
	}
	if err := library.Delete(service, name); err != nil {
		return translate(err)
	}
	return removeParts(name, content)
}

// removeParts deletes the parts of a value whose item had this content. A missing part is no error.
func removeParts(name, content string) error {
	h, _ := parseHead(content)
	for i := range h.count {
		err := library.Delete(service, h.account(name, i))
		if err != nil && !errors.Is(err, library.ErrNotFound) {
			return fmt.Errorf("deleting parts of the old value: %w", translate(err))
		}
	}
	return nil
}
