package protocol

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"mcpgateway/internal/wire"
)

// LabelElicitations inserts text in front of each message in the data.elicitations of an error
// object with the code CodeURLElicitationRequired. All other bytes stay. It returns failure itself
// if there are no elicitations, and the error of URLElicitations.
func LabelElicitations(failure []byte, text string) ([]byte, error) {
	list, err := URLElicitations(failure)
	if list == nil || err != nil {
		return failure, err
	}
	front := wire.Quote(text)
	front = front[:len(front)-1]
	var marked []byte
	done, end := 0, 0 // end of the text in marked; end of the previous element
	wire.EachElement(list, func(one []byte) bool {
		start := end + bytes.Index(list[end:], one)
		end = start + len(one)
		_, at := wire.Lookup(one, "message")
		marked = append(append(marked, list[done:start+at]...), front...)
		done = start + at + len(`"`)
		return true
	})
	marked = append(marked, list[done:]...)
	return mapMember(failure, "data", func(data []byte) []byte {
		return mapMember(data, "elicitations", func([]byte) []byte { return marked })
	}), nil
}

// URLElicitations returns data.elicitations of an error object whose code is
// CodeURLElicitationRequired, nil if there is none. It returns an error if the code, the list or
// one of the elicitations is ambiguous (see CheckElicitationParams), or if the list is not an
// array.
func URLElicitations(failure []byte) (list []byte, err error) {
	if !mayBeURLElicitation(failure) {
		return nil, nil
	}
	if err := checkMembers(failure, "its error", "code", "data"); err != nil {
		return nil, err
	}
	data, _ := wire.Lookup(failure, "data")
	if err := checkMembers(data, "the data of its error", "elicitations"); err != nil {
		return nil, err
	}
	list, _ = wire.Lookup(data, "elicitations")
	if wire.IsNull(list) {
		return nil, nil
	}
	if !wire.EachElement(list, func(one []byte) bool {
		if unclear := CheckElicitationParams(one); unclear != nil {
			err = fmt.Errorf("an entry of its elicitations is ambiguous: %w", unclear)
		}
		return err == nil
	}) {
		return nil, errors.New(`"elicitations" in the data of its error must be a list`)
	}
	return list, err
}

// mayBeURLElicitation reports whether a client may read the code of an error object as
// CodeURLElicitationRequired.
func mayBeURLElicitation(failure []byte) (found bool) {
	wire.Members(failure, func(key string, value []byte, _ int) {
		if strings.EqualFold(key, "code") {
			code, err := strconv.ParseFloat(string(value), 64)
			found = found || err == nil && math.Trunc(code) == CodeURLElicitationRequired
		}
	})
	return found
}
