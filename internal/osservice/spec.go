// Package osservice installs the gateway as a service of the operating system: a unit of systemd
// (of the system or of a user), a job of launchd, or a service of Windows.
package osservice

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// DefaultName is the name of the service unless the user chooses another.
const DefaultName = "mcp-gateway"

// A Spec describes a service. It contains no secrets.
type Spec struct {
	Name       string   // see CheckName
	Executable string   // absolute path
	Arguments  []string // of the executable; paths are absolute
	User       bool     // a service of the current user, not of the system
	RunAs      string   // user of a service of the system; "" = one without rights
	// EnvironmentFile is the path of a file with lines NAME=value, which need not exist; "" = none.
	// Only systemd reads it.
	EnvironmentFile string
	SearchPath      string // the variable PATH of the service; "" = that of the service manager
	LogFile         string // file for the log, with launchd
	Configuration   string // path of the configuration
	State           string // path of the state directory; "" = none
}

// CheckName returns an error if a name cannot be the name of a service: it needs to have 1 to 64
// letters, digits and . _ -, and to begin with a letter or a digit.
func CheckName(name string) error {
	isLetterOrDigit := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
	}
	for i, r := range name {
		if !isLetterOrDigit(r) && (i == 0 || !strings.ContainsRune("._-", r)) {
			return fmt.Errorf("%q cannot be the name of a service: use letters, digits, dots, - and _", name)
		}
	}
	if name == "" || len(name) > 64 {
		return errors.New("the name of a service has 1 to 64 characters")
	}
	return nil
}

// check returns an error if the description cannot be written in the format of a service manager.
func (d Spec) check() error {
	if err := CheckName(d.Name); err != nil {
		return err
	}
	texts := append([]string{d.Executable, d.EnvironmentFile, d.SearchPath, d.LogFile, d.RunAs,
		d.Configuration, d.State},
		d.Arguments...)
	for _, text := range texts {
		if strings.ContainsAny(text, "\n\r\x00") || strings.Contains(text, "{{") {
			return fmt.Errorf("%q has characters that a service cannot have", text)
		}
	}
	return nil
}

// mark is in each file that Install writes. A file without it belongs to somebody else.
const mark = "Written by gateway service install."

// Text returns the text of the file that describes the service to the service manager of a system
// ("linux" or "darwin"), and "" for other systems, whose service managers have no such file.
func (d Spec) Text(system string) string {
	switch system {
	case "linux":
		return d.unit()
	case "darwin":
		return d.job()
	}
	return ""
}

// Path returns the path of the file with Text; "" = the service manager has no such file.
func (d Spec) Path() (string, error) {
	home := ""
	if d.User {
		var err error
		if home, err = os.UserHomeDir(); err != nil {
			return "", err
		}
	}
	switch {
	case runtime.GOOS == "linux" && d.User:
		return filepath.Join(home, ".config/systemd/user", d.Name+".service"), nil
	case runtime.GOOS == "linux":
		return filepath.Join("/etc/systemd/system", d.Name+".service"), nil
	case runtime.GOOS == "darwin" && d.User:
		return filepath.Join(home, "Library/LaunchAgents", d.Name+".plist"), nil
	case runtime.GOOS == "darwin":
		return filepath.Join("/Library/LaunchDaemons", d.Name+".plist"), nil
	}
	return "", nil
}
