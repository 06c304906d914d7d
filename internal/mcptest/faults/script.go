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

// A Script is how a stub behaves. The zero value behaves well.
type Script struct {
	Name       string `json:"name"` // what echo says that it is; "" = stub
	Generation string `json:"era"`  // legacy (""), modern, or both

	Capabilities   json.RawMessage `json:"capabilities"` // declared instead of those that it has
	Revision       string          `json:"revision"`     // said in the handshake whatever is asked for
	UnknownMethods []string        `json:"refuses"`      // methods that it does not know, be they declared or not
	ExtraTools     int             `json:"tools"`        // tool_0 and so on, beside echo, slow and do
	PageSize       int             `json:"page"`         // tools on one page; 0 = all
	PageLoop       string          `json:"pages"`        // endless: there is always a next one; circle: the first follows the last

	// On says what is done at each message of a method, and at "start": before
	// anything is read.
	On map[string][]Fault `json:"on"`

	IgnoreStop bool `json:"stubborn"` // neither SIGTERM nor the end of stdin ends it

	// Of the HTTP twin:
	AlwaysStream bool `json:"stream"` // answers are events, even where one message is all
	NoGet        bool `json:"noGet"`  // GET is answered with 405
}

// A Fault is one thing done wrong. Which of its members count depends on Fault.
type Fault struct {
	// Kind is one of:
	//
	//	delay    For
	//	noise    what is no JSON: Where is before (""), between the halves of the answer (lines of its own, but for
	//	         Text, which is put there as it is), or after; Times
	//	chunks   the answer in pieces of Bytes, with a pause of For after each
	//	stderr   Bytes of text, before the answer
	//	die      At is reading, before, middle or after (the answer); By is exit (with Code), or kill
	//	deaf     nothing is read for For; 0 = never again
	//	mute     nothing is answered for For; 0 = never again
	//	silent   this is not answered
	//	fork     Times grandchildren; How is normal, stubborn (no SIGTERM), or setsid
	//	stubborn neither SIGTERM nor the end of stdin ends it from now on
	//	id       How is unknown, string, null or other: the answer is under that; or twice
	//	notify   a storm of Times; What is log, progress, list_changed, or a method
	//	huge     Bytes in the result
	//	utf8     the result is no UTF-8
	//	junk     Text instead of the answer; "" = what is no JSON
	//	error    an error with Code
	//	ask      a request of What (a method, with Text as its params) first; its reply is in the result
	//
	// and of the HTTP twin alone (where die is the end of the connection, stderr, deaf
	// and fork are nothing):
	//
	//	status   Code, Retry as Retry-After, Text as a page of HTML
	//	session  all sessions are lost: Code is 404, 400, or 200 for an error in the body
	//	cut      the stream ends without an answer; At is before, middle or after (an event)
	//	type     Text as Content-Type
	//	reset    the connection is reset
	//	redirect to Text; "" = in a circle
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

	// Skip is how many messages of its method are let through first, Most how many
	// times at most it is done (0 = always), by one process. Once names a file: it is
	// done by who can make it, so by one process of many. These are of a Script alone.
	Skip     int    `json:"skip,omitempty"`
	MaxTimes int    `json:"most,omitempty"`
	OnceFile string `json:"once,omitempty"`
}

// A Duration is a time.Duration, "20ms" in JSON.
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

// StdioKinds are those that a stdio stub knows, and HTTPKinds those that the twin knows
// beside them.
var (
	StdioKinds = []string{
		"delay", "noise", "chunks", "stderr", "die", "deaf", "mute", "silent", "fork", "stubborn", "id", "notify",
		"huge", "utf8", "junk", "error", "ask",
	}
	HTTPKinds = []string{"status", "session", "cut", "type", "reset", "redirect"}
)

// ParseScript reads a Script, strictly: a knob that does not exist, or a fault, is an
// error. "@FILE" is read from there.
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
				return s, fmt.Errorf("script: on %s: there is no fault %q", method, f.Kind)
			}
		}
	}
	return s, nil
}

// String is the script as ParseScript reads it.
func (s Script) String() string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// requestedFaults are the deeds that the arguments of do ask for.
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
			return nil, fmt.Errorf("there is no fault %q", f.Kind)
		}
	}
	return a.Deeds, nil
}
