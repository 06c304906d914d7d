//go:build unix

package adminapi

import (
	"encoding/json"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"mcpgateway/internal/atomicfile"
)

// maxSocketPath is the length of the longest path of a socket that every system accepts, in bytes.
const maxSocketPath = 103

// Listen opens the admin socket of a gateway, and registers the gateway in a state directory. Only
// this user can connect. The socket is removed when it is closed. If its path were too long, it is
// in a folder of its own for temporary files.
func Listen(stateDir, id string) (*Socket, error) {
	dir := Dir(stateDir)
	if err := makeRegistry(dir); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, id+socketSuffix)
	if len(path+tempSuffix) > maxSocketPath {
		return listenElsewhere(dir, id)
	}
	ln, err := listenUnix(path + tempSuffix)
	if err != nil {
		return nil, err
	}
	if err := os.Rename(path+tempSuffix, path); err != nil {
		ln.Close()
		_ = os.Remove(path + tempSuffix)
		return nil, err
	}
	return &Socket{Listener: ln, remove: func() { removeSocket(path) }}, nil
}

// listenElsewhere opens the socket in a private folder, and records in the registry where it is.
func listenElsewhere(dir, id string) (*Socket, error) {
	folder, err := os.MkdirTemp("", "mcp-gateway-") // mode 0700
	if err != nil {
		return nil, err
	}
	path := filepath.Join(folder, "s")
	if len(path) > maxSocketPath {
		_ = os.Remove(folder)
		if folder, err = os.MkdirTemp("/tmp", "mcp-gateway-"); err != nil {
			return nil, err
		}
		path = filepath.Join(folder, "s")
	}
	ln, err := listenUnix(path)
	if err != nil {
		_ = os.Remove(folder)
		return nil, err
	}
	record := filepath.Join(dir, id+recordSuffix)
	s := &Socket{Listener: ln, remove: func() {
		_ = os.Remove(record)
		removeSocket(path)
		_ = os.Remove(folder)
	}}
	text, _ := json.Marshal(socketRecord{
		Version: socketRecordVersion, PID: os.Getpid(), Network: "unix", Address: path,
	})
	if err := atomicfile.Write(record, text, atomicfile.Options{}); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// listenUnix opens a socket that only this user can connect to. Its folder is private already.
func listenUnix(path string) (net.Listener, error) {
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	ln.SetUnlinkOnClose(false) // it is renamed
	if err := os.Chmod(path, 0o600); err != nil {
		ln.Close()
		_ = os.Remove(path)
		return nil, err
	}
	return ln, nil
}

// isPrivate reports whether only its owner can open a folder.
func isPrivate(info fs.FileInfo) bool { return info.Mode().Perm()&0o077 == 0 }

func isRefused(error) bool { return false }
