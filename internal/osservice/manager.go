package osservice

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/kardianos/service"
)

// ErrNotInstalled is the error about a service that does not exist.
var ErrNotInstalled = service.ErrNotInstalled

// ErrNoManager is the error about a system without a supported service manager.
var ErrNoManager = errors.New("no supported service manager runs here: systemd, launchd or Windows")

// ErrForeign is the error about a file that Install has not written.
var ErrForeign = errors.New("was not written by gateway service install")

// A Manager installs and controls one service.
type Manager struct {
	spec    Spec
	service service.Service
}

// libraryService is the service for the library; see Run.
type libraryService struct{}

func (libraryService) Start(service.Service) error { return nil }
func (libraryService) Stop(service.Service) error  { return nil }

// New returns a Manager. It changes nothing. The error is ErrNoManager if there is no supported
// service manager, or an error about a description that cannot be used.
func New(d Spec) (*Manager, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	if runtime.GOOS == "windows" && d.User {
		return nil, errors.New("there are no services of a user on Windows")
	}
	platform := service.Platform()
	if runtime.GOOS == "linux" && platform != "linux-systemd" || platform == "" {
		return nil, ErrNoManager
	}
	s, err := service.New(libraryService{}, &service.Config{
		Name: d.Name, DisplayName: "MCP gateway (" + d.Name + ")",
		Description: "One MCP server that combines all other MCP servers",
		Executable:  d.Executable, Arguments: d.Arguments, UserName: d.account(),
		Option: service.KeyValue{
			"UserService": d.User, "SystemdScript": d.unit(), "LaunchdConfig": d.job(),
			"OnFailure": "restart", "OnFailureDelayDuration": "2s",
		},
	})
	if err != nil {
		return nil, err
	}
	return &Manager{d, s}, nil
}

// account returns the user of a service for the library.
func (d Spec) account() string {
	if runtime.GOOS == "windows" && d.RunAs == "" {
		return `NT AUTHORITY\LocalService`
	}
	return d.RunAs
}

// Path returns the path of the file that Install writes; "" = none.
func (m *Manager) Path() string {
	path, err := m.spec.Path()
	if err != nil {
		return ""
	}
	return path
}

// An InstallResult is the change that Install has made.
type InstallResult int

// The changes of Install.
const (
	Unchanged InstallResult = iota // the service was installed with the same description
	Installed
	Replaced // the service had another description
)

// Install writes the description of the service, and enables the service, so that it is started at
// the next start of the system or login of the user. It does not start the service. If a file
// exists that Install has not written, it returns an error that wraps ErrForeign, unless force is
// true.
func (m *Manager) Install(force bool) (InstallResult, error) {
	result := Installed
	old, path, err := m.installed()
	switch {
	case errors.Is(err, ErrNotInstalled):
	case err != nil:
		return Unchanged, err
	case path == "":
		result = Replaced
	case !strings.Contains(old, mark) && !force:
		return Unchanged, foreignError(path)
	case old == m.spec.Text(runtime.GOOS):
		return Unchanged, nil
	default:
		result = Replaced
	}
	if result == Replaced {
		if err := m.remove(path); err != nil {
			return Unchanged, err
		}
	}
	if err := m.service.Install(); err != nil {
		if path != "" {
			_ = os.Remove(path) // the library leaves it
		}
		return Unchanged, err
	}
	return result, nil
}

// Remains are the files of a service that Uninstall does not remove; "" = none, or not known.
type Remains struct{ Configuration, State string }

// Uninstall stops the service, disables it, and removes what Install has written. If a file exists
// that Install has not written, it returns an error that wraps ErrForeign, unless force is true.
func (m *Manager) Uninstall(force bool) (r Remains, err error) {
	old, path, err := m.installed()
	if err != nil {
		return r, err
	}
	if path != "" && !strings.Contains(old, mark) && !force {
		return r, foreignError(path)
	}
	for line := range strings.Lines(old) {
		line = strings.TrimSpace(line)
		if value, ok := strings.CutPrefix(line, configurationMark); ok {
			r.Configuration = value
		} else if value, ok := strings.CutPrefix(line, stateMark); ok {
			r.State = value
		}
	}
	if status, err := m.service.Status(); err != nil || status == service.StatusRunning {
		_ = m.stop() // fails if the service does not run
	}
	if err := m.remove(path); err != nil {
		return r, err
	}
	m.removeTraces(path)
	return r, nil
}

// remove disables the service and removes its description.
func (m *Manager) remove(path string) error {
	err := m.service.Uninstall()
	if path == "" {
		return err
	}
	// The library keeps the file if the service manager fails.
	if removed := os.Remove(path); removed != nil && !errors.Is(removed, fs.ErrNotExist) {
		return errors.Join(err, removed)
	}
	return err
}

// removeEmptyFolders removes the folders above path that Install may have made, if they are empty.
func removeEmptyFolders(path string, levels int) {
	for range levels {
		path = filepath.Dir(path)
		if os.Remove(path) != nil {
			return
		}
	}
}

// installed returns the description of the installed service and the path of its file; "" = the
// service manager has no file.
func (m *Manager) installed() (text, path string, err error) {
	if path, err = m.spec.Path(); err != nil {
		return "", path, err
	}
	if path == "" {
		if _, err := m.service.Status(); errors.Is(err, service.ErrNotInstalled) {
			return "", "", ErrNotInstalled
		}
		return "", "", nil
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", path, ErrNotInstalled
	}
	return string(data), path, err
}

func foreignError(path string) error { return fmt.Errorf("%s %w", path, ErrForeign) }

// Start starts the service. With systemd it waits until the service is ready.
func (m *Manager) Start() error { return m.control(m.start) }

// Stop stops the service and waits until it has ended.
func (m *Manager) Stop() error { return m.control(m.stop) }

func (m *Manager) control(action func() error) error {
	if _, _, err := m.installed(); err != nil {
		return err
	}
	return action()
}
