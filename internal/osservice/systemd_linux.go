package osservice

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Status returns the state of the service, or ErrNotInstalled.
func (m *Manager) Status() (ServiceState, error) {
	_, path, err := m.installed()
	if err != nil {
		return ServiceState{}, err
	}
	out, err := m.systemctl("show", "--timestamp=us+utc", "--property="+
		"ActiveState,SubState,MainPID,ActiveEnterTimestamp,StatusText,UnitFileState,Result")
	if err != nil {
		return ServiceState{}, err
	}
	s := parseProperties(out)
	s.Name, s.File = m.spec.Name, path
	return s, nil
}

// systemctl runs systemctl for the unit, and returns its output. The library discards the output,
// which has the reason of a failure.
func (m *Manager) systemctl(action string, options ...string) (string, error) {
	words := append([]string{action, m.spec.Name + ".service"}, options...)
	if m.spec.User {
		words = append(words, "--user")
	}
	out, err := exec.Command("systemctl", words...).CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		return "", fmt.Errorf("systemctl %s: %w: %s", action, err, text)
	}
	return text, nil
}

func (m *Manager) start() error {
	_, err := m.systemctl("start")
	return err
}

func (m *Manager) stop() error {
	_, err := m.systemctl("stop")
	return err
}

// parseProperties reads the output of systemctl show.
func parseProperties(text string) (s ServiceState) {
	values := make(map[string]string)
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		values[key] = value
	}
	s.Running = values["ActiveState"] == "active" || values["ActiveState"] == "reloading"
	s.State = values["ActiveState"] + " (" + values["SubState"] + ")"
	s.Enabled = values["UnitFileState"] == "enabled"
	s.Text = values["StatusText"]
	if values["Result"] != "success" {
		s.Result = values["Result"]
	}
	s.PID, _ = strconv.Atoi(values["MainPID"])
	at, err := time.Parse("Mon 2006-01-02 15:04:05.999999 MST", values["ActiveEnterTimestamp"])
	if err == nil && s.Running {
		s.Since = &at
	}
	return s
}

// removeTraces removes the folders that are left of a unit, and the memory of systemd that it has
// failed.
func (m *Manager) removeTraces(path string) {
	_, _ = m.systemctl("reset-failed") // fails unless the service has failed
	if m.spec.User {
		_ = os.Remove(filepath.Join(filepath.Dir(path), "default.target.wants"))
		removeEmptyFolders(path, 2)
	}
}

// ProgramOf returns the path of the program of a process, and whether the file was replaced or
// removed since the process has started; "" = not known.
func ProgramOf(pid int) (path string, replaced bool) {
	link, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return "", false
	}
	return strings.CutSuffix(link, " (deleted)")
}
