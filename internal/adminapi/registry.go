// Package adminapi has the types of the admin API, the registry of the gateways that run, and the
// client of the API. The server is internal/adminserver.
//
// Each gateway has an admin socket in the folder gateways of its state directory. The folder is the
// registry: whoever lists it finds the gateways of this user. A socket has its name from the moment
// on at which it accepts connections, so that a socket that refuses them is stale.
package adminapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"mcpgateway/internal/atomicfile"
)

const (
	socketSuffix = ".sock"
	recordSuffix = ".json"
	tempSuffix   = ".tmp"

	maxRegistered   = 1000    // gateways that FindGateways returns
	maxSocketRecord = 4 << 10 // bytes of a record
	tempFileAge     = time.Minute
)

// A socketRecord is a file in the registry that says where an admin socket is, if the socket is not
// in the registry itself.
type socketRecord struct {
	Version int    `json:"version"`
	PID     int    `json:"pid"`
	Network string `json:"network"` // unix or tcp
	Address string `json:"address"`
	Token   string `json:"token,omitempty"` // of a tcp address
}

const socketRecordVersion = 1

// Dir returns the registry in a state directory.
func Dir(stateDir string) string { return filepath.Join(stateDir, "gateways") }

// A Registered is a gateway in the registry. It may have ended.
type Registered struct {
	ID     string
	path   string // of the file in the registry
	record socketRecord
}

// FindGateways returns the gateways in the registry of a state directory, in the order of their
// ids. A missing registry is empty.
func FindGateways(stateDir string) ([]Registered, error) {
	entries, err := os.ReadDir(Dir(stateDir))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return nil, err
	}
	var all []Registered
	for _, e := range entries {
		name := e.Name()
		r := Registered{path: filepath.Join(Dir(stateDir), name)}
		var isRecord bool
		if id, isSocket := strings.CutSuffix(name, socketSuffix); isSocket {
			r.ID, r.record.Network, r.record.Address = id, "unix", r.path
		} else if r.ID, isRecord = strings.CutSuffix(name, recordSuffix); !isRecord {
			continue
		} else if r.record, err = readSocketRecord(r.path); err != nil {
			continue // it is being removed, or is no record of this version
		}
		if all = append(all, r); len(all) == maxRegistered {
			break
		}
	}
	return all, nil
}

func readSocketRecord(path string) (socketRecord, error) {
	var r socketRecord
	text, err := atomicfile.ReadRecord(path, maxSocketRecord)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(text, &r); err != nil || r.Version != socketRecordVersion {
		return r, errors.New("not a record of this version")
	}
	return r, nil
}

// dial connects to the admin socket. If the gateway has ended, it removes the gateway from the
// registry and returns ErrEnded.
func (r *Registered) dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, r.record.Network, r.record.Address)
	if hasRefused(err) {
		r.remove()
		return nil, ErrEnded
	}
	return conn, err
}

// HasEnded reports whether the gateway has ended and has left its files in the registry. Unlike the
// methods of an APIClient, it does not remove them.
func (r Registered) HasEnded(ctx context.Context) bool {
	var d net.Dialer
	conn, err := d.DialContext(ctx, r.record.Network, r.record.Address)
	if err == nil {
		conn.Close()
	}
	return hasRefused(err)
}

// hasRefused reports whether an attempt to connect has failed because nobody listens.
func hasRefused(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) || isRefused(err)
}

// remove removes the files of a gateway that has ended.
func (r *Registered) remove() {
	if r.record.Network == "unix" {
		removeSocket(r.record.Address)
		if r.record.Address != r.path { // in a folder of its own; see listenElsewhere
			_ = os.Remove(filepath.Dir(r.record.Address))
		}
	}
	if strings.HasSuffix(r.path, recordSuffix) {
		_ = os.Remove(r.path)
	}
}

// removeSocket removes a file if it is a socket.
func removeSocket(path string) {
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == fs.ModeSocket {
		_ = os.Remove(path)
	}
}

// Sweep removes the gateways that have ended from the registry of a state directory.
func Sweep(ctx context.Context, stateDir string) {
	all, _ := FindGateways(stateDir)
	for _, r := range all {
		if conn, err := r.dial(ctx); err == nil {
			conn.Close()
		}
	}
	entries, _ := os.ReadDir(Dir(stateDir))
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && strings.HasSuffix(e.Name(), tempSuffix) &&
			time.Since(info.ModTime()) > tempFileAge {
			_ = os.Remove(filepath.Join(Dir(stateDir), e.Name()))
		}
	}
}

// makeRegistry creates the registry, which only this user can open.
func makeRegistry(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if !isPrivate(info) {
		if err := os.Chmod(dir, 0o700); err != nil {
			return fmt.Errorf("other users can open %s: %w", dir, err)
		}
	}
	return nil
}
