//go:build !linux

package osservice

import (
	"runtime"

	"github.com/kardianos/service"
)

// Status returns the state of the service, or ErrNotInstalled.
func (m *Manager) Status() (ServiceState, error) {
	_, path, err := m.installed()
	if err != nil {
		return ServiceState{}, err
	}
	s, err := m.service.Status()
	if err != nil {
		return ServiceState{}, err
	}
	state := map[service.Status]string{
		service.StatusRunning: "running", service.StatusStopped: "stopped",
	}[s]
	if state == "" {
		state = "unknown"
	}
	return ServiceState{Name: m.spec.Name, File: path, State: state, Enabled: true,
		Running: s == service.StatusRunning}, nil
}

func (m *Manager) start() error { return m.service.Start() }
func (m *Manager) stop() error  { return m.service.Stop() }

// removeTraces removes the folders that are left of a job of launchd.
func (m *Manager) removeTraces(path string) {
	if runtime.GOOS == "darwin" && m.spec.User {
		removeEmptyFolders(path, 1)
	}
}

// ProgramOf returns "": the program of a process is not known.
func ProgramOf(int) (path string, replaced bool) { return "", false }
