package faults

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// A Script is the behaviour of a stub. The zero value has no faults.
type Script struct {
	Name       string `json:"name"` // reported by echo; "" = stub
	Generation string `json:"era"`  // legacy (""), modern or both

	Capabilities json.RawMessage `json:"capabilities"` // declared ones; nil = the supported ones
	// Revision is reported in the handshake regardless of the request; "" = the requested one.
	Revision string `json:"revision"`
	// UnknownMethods are not supported, even if they are declared.
	UnknownMethods []string `json:"refuses"`
	// ExtraTools is the number of tools (tool_0 and so on) in addition to echo, slow and do.
	ExtraTools int `json:"tools"`
	PageSize   int `json:"page"` // tools per page; 0 = all
	// PageLoop is "endless" if there is always a next page, and "circle" if the first page follows
	// the last page.
	PageLoop string `json:"pages"`

	// On contains the faults for each message of a method, and the faults for "start", which are
	// applied before anything is read.
	On map[string][]Fault `json:"on"`

	IgnoreStop bool `json:"stubborn"` // neither SIGTERM nor the end of stdin ends the process

	// HTTPStub only:
	AlwaysStream bool `json:"stream"` // responses are always event streams
	NoGet        bool `json:"noGet"`  // GET gets status 405
}

// A Fault is one fault. Kind determines which fields are used.
type Fault struct {
	// Kind is one of:
	//
	//	delay    Duration
	//	noise    output that is not JSON: Where is before (""), between the halves of the response
	//	         (on lines of its own, but Text is inserted unchanged), or after; Times
	//	chunks   the response in pieces of Bytes, with a pause of Duration after each
	//	stderr   Bytes of text, before the response
	//	die      At is reading, before, middle or after (the response);
	//	         By is exit (with Code), or kill
	//	deaf     nothing is read for Duration; 0 = never again
	//	mute     nothing is written for Duration; 0 = never again
	//	silent   no response to this request
	//	fork     Times grandchildren; How is normal, stubborn (ignore SIGTERM), or setsid
	//	stubborn from now on neither SIGTERM nor the end of stdin ends the process
	//	id       How is the response's id: unknown, string, null or other; or twice: two responses
	//	notify   Times notifications; What is log, progress, list_changed, or a method
	//	huge     Bytes in the result
	//	utf8     the result contains invalid UTF-8
	//	junk     Text instead of the response; "" = text that is not JSON
	//	error    an error with Code
	//	ask      first a request of method What with the params Text; then a result that contains
	//	         the client's response
	//
	// Only for HTTPStub (in which die closes the connection, and stderr, deaf and fork have no
	// effect):
	//
	//	status   Code, RetryAfter as the header Retry-After, Text as an HTML page
	//	session  all sessions are lost: Code is 404, 400, or 200 for an error in the body
	//	cut      the stream ends without a response; At is before, middle or after (an event)
	//	type     Text as Content-Type
	//	reset    the connection is reset
	//	redirect to Text; "" = to itself
	Kind string `json:"fault"`

	At         string   `json:"at,omitempty"`
	By         string   `json:"by,omitempty"`
	How        string   `json:"how,omitempty"`
	Where      string   `json:"where,omitempty"`
	What       string   `json:"what,omitempty"`
	Text       string   `json:"text,omitempty"`
	RetryAfter string   `json:"retry,omitempty"`
	Bytes      int      `json:"bytes,omitempty"`
	Times      int      `json:"times,omitempty"` // 0 = 1
	Code       int      `json:"code,omitempty"`
	Duration   Duration `json:"for,omitempty"`

	// Skip is the number of messages of the method before the first with the fault. MaxTimes is the
	// maximum number of times that one process applies the fault; 0 = no limit. OnceFile is the
	// path of a file: only the process that creates the file applies the fault; "" = no such limit.
	// These three fields are used in Scripts only.
	Skip     int    `json:"skip,omitempty"`
	MaxTimes int    `json:"most,omitempty"`
	OnceFile string `json:"once,omitempty"`
}

// A Duration is a time.Duration that is a string like "20ms" in JSON.
type Duration time.Duration

func (s *Duration) UnmarshalJSON(text []byte) error {
	var word string
	if err := json.Unmarshal(text, &word); err != nil {
		return err
	}
	d, err := time.ParseDuration(word)
	*s = Duration(d)
	return err
}

func (s Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(s).String()) }

func (f Fault) times() int { return max(f.Times, 1) }

// StdioKinds are the kinds of faults on stdio. HTTPKinds are the additional kinds of HTTPStub.
var (
	StdioKinds = []string{
		"delay", "noise", "chunks", "stderr", "die", "deaf", "mute", "silent", "fork", "stubborn",
		"id", "notify", "huge", "utf8", "junk", "error", "ask",
	}
	HTTPKinds = []string{"status", "session", "cut", "type", "reset", "redirect"}
)

// ParseScript parses a Script from JSON, or from a file if text is "@FILE". Unknown keys and
// kinds are errors.
func ParseScript(text string) (s Script, err error) {
	raw := []byte(text)
	if path, ok := strings.CutPrefix(text, "@"); ok {
		if raw, err = os.ReadFile(path); err != nil {
			return s, err
		}
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return s, fmt.Errorf("script: %w", err)
	}
	for method, faults := range s.On {
		for _, f := range faults {
			if !slices.Contains(StdioKinds, f.Kind) && !slices.Contains(HTTPKinds, f.Kind) {
				return s, fmt.Errorf("script: on %s: unknown fault %q", method, f.Kind)
			}
		}
	}
	return s, nil
}

// String returns the script in the format of ParseScript.
func (s Script) String() string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// requestedFaults returns the faults in the arguments of do.
func requestedFaults(arguments []byte) ([]Fault, error) {
	var a struct {
		Fault
		Deeds []Fault `json:"deeds"`
	}
	if err := json.Unmarshal(arguments, &a); err != nil {
		return nil, err
	}
	if a.Kind != "" {
		a.Deeds = append([]Fault{a.Fault}, a.Deeds...)
	}
	for _, f := range a.Deeds {
		if !slices.Contains(StdioKinds, f.Kind) && !slices.Contains(HTTPKinds, f.Kind) {
			return nil, fmt.Errorf("unknown fault %q", f.Kind)
		}
	}
	return a.Deeds, nil
}
