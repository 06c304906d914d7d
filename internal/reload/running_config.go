package reload

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"mcpgateway/internal/atomicfile"
	"mcpgateway/internal/config"
)

// A RunningConfig is the record of the configuration in force in a gateway. Other processes compare
// the record with the file. The state directory contains one record per file, from the gateway that
// has loaded the file last. A record contains digests instead of values.
type RunningConfig struct {
	Version int          `json:"version"`
	File    string       `json:"file"`
	PID     int          `json:"pid"`
	Start   ProcessStart `json:"birth,omitzero"`
	Time    time.Time    `json:"time"`
	Flags   []string     `json:"flags,omitempty"` // keys set by the command line
	config.Digest
}

const (
	runningConfigVersion = 1
	maxRunningConfig     = 4 << 20 // bytes of a record
	keptRunningConfigs   = 100     // records; the oldest are removed
)

// HasExited reports whether the gateway is known to have exited.
func (c *RunningConfig) HasExited() bool { return hasExited(c.PID, c.Start) }

// RunningConfigPath returns the path of the record of a configuration file.
func RunningConfigPath(stateDir, file string) string {
	return RecordPath(stateDir, "applied", file)
}

// RecordPath returns the path of a record about a configuration file, in a folder of the state
// directory.
func RecordPath(stateDir, folder, file string) string {
	if path, err := filepath.Abs(file); err == nil {
		file = path
	}
	sum := sha256.Sum256([]byte(file))
	return filepath.Join(stateDir, folder, hex.EncodeToString(sum[:8])+".json")
}

// WriteRunningConfig records c as the configuration in force. It does nothing if there is no state
// directory or no configuration file.
func WriteRunningConfig(source string, c *config.Config, flags []string) error {
	if c.StateDir == "" || source == "" {
		return nil
	}
	file, err := filepath.Abs(source)
	if err != nil {
		return err
	}
	text, err := json.Marshal(RunningConfig{
		runningConfigVersion, file, os.Getpid(), startOf(os.Getpid()),
		time.Now().UTC().Truncate(time.Second), flags, config.NewDigest(c, rand.Text()),
	})
	if err != nil {
		return err
	}
	path := RunningConfigPath(c.StateDir, source)
	return atomicfile.WriteRecord(path, append(text, '\n'), keptRunningConfigs)
}

// ReadRunningConfig returns the record of a file. The error is fs.ErrNotExist if there is no record
// or no state directory. A record that cannot be used is another error.
func ReadRunningConfig(stateDir, source string) (*RunningConfig, error) {
	if stateDir == "" {
		return nil, fs.ErrNotExist
	}
	text, err := atomicfile.ReadRecord(RunningConfigPath(stateDir, source), maxRunningConfig)
	if err != nil {
		return nil, err
	}
	return parseRunningConfig(text)
}

func parseRunningConfig(text []byte) (*RunningConfig, error) {
	c := new(RunningConfig)
	if err := json.Unmarshal(text, c); err != nil {
		return nil, errors.New("it is damaged")
	}
	if c.Version != runningConfigVersion {
		return nil, fmt.Errorf("it has version %d; this gateway reads version %d",
			c.Version, runningConfigVersion)
	}
	return c, nil
}
