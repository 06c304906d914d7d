package adminapi

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/windows"

	"mcpgateway/internal/atomicfile"
)

// Listen opens a loopback port for the admin API of a gateway, and registers the gateway in a state
// directory: the file there has the token that requests need. The registration is removed when the
// listener is closed.
func Listen(stateDir, id string) (*Socket, error) {
	dir := Dir(stateDir)
	if err := makeRegistry(dir); err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	record, token := filepath.Join(dir, id+recordSuffix), rand.Text()
	text, _ := json.Marshal(socketRecord{
		Version: socketRecordVersion, PID: os.Getpid(), Network: "tcp",
		Address: ln.Addr().String(), Token: token,
	})
	if err := atomicfile.Write(record, text, atomicfile.Options{}); err != nil {
		ln.Close()
		return nil, err
	}
	return &Socket{Listener: ln, Token: token, remove: func() { _ = os.Remove(record) }}, nil
}

// isPrivate reports true: the profile of a user is private on Windows.
func isPrivate(fs.FileInfo) bool { return true }

func isRefused(err error) bool { return errors.Is(err, windows.WSAECONNREFUSED) }
