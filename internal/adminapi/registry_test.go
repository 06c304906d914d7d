package adminapi_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"mcpgateway/internal/adminapi"
)

// listen opens an admin socket, and closes it when the test ends.
func listen(t *testing.T, stateDir, id string) *adminapi.Socket {
	t.Helper()
	s, err := adminapi.Listen(stateDir, id)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// answer serves a fixed text on the socket.
func answer(t *testing.T, s *adminapi.Socket, status int, text string) {
	server := &http.Server{Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			if s.Token != "" && r.Header.Get("Authorization") != "Bearer "+s.Token {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			w.WriteHeader(status)
			fmt.Fprint(w, text)
		})}
	go server.Serve(s)
	t.Cleanup(func() { server.Close() })
}

func find(t *testing.T, stateDir string) []adminapi.Registered {
	t.Helper()
	all, err := adminapi.FindGateways(stateDir)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestGatewaysAreFound(t *testing.T) {
	state := t.TempDir()
	if all := find(t, state); len(all) != 0 {
		t.Fatalf("%+v", all)
	}
	answer(t, listen(t, state, "b"), 200, `{"gateway":{"id":"b","pid":7}}`)
	second := listen(t, state, "a")
	answer(t, second, 200, `{"gateway":{"id":"a"}}`)
	all := find(t, state)
	if len(all) != 2 || all[0].ID != "a" || all[1].ID != "b" {
		t.Fatalf("%+v", all)
	}
	status, err := all[1].Client().Status(t.Context())
	if err != nil || status.Gateway.PID != 7 {
		t.Errorf("%+v %v", status, err)
	}
	second.Close()
	if left := find(t, state); len(left) != 1 || left[0].ID != "b" {
		t.Errorf("%+v", left)
	}
	if _, err := all[0].Client().Status(t.Context()); !errors.Is(err, adminapi.ErrEnded) {
		t.Errorf("%v, want ErrEnded", err)
	}
}

// Only the user can open the folder and the socket, also if another process has created the folder.
func TestSocketIsPrivate(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the profile of a user is private on Windows")
	}
	state := t.TempDir()
	if err := os.Mkdir(adminapi.Dir(state), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(adminapi.Dir(state), 0o777); err != nil {
		t.Fatal(err)
	}
	listen(t, state, "a")
	for path, want := range map[string]os.FileMode{
		adminapi.Dir(state): 0o700, filepath.Join(adminapi.Dir(state), "a.sock"): 0o600,
	} {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v %v", path, info.Mode(), err)
		}
	}
}

// A socket of a process that was killed refuses connections. It is removed by the first request,
// and by the start of the next gateway.
func TestStaleSocketsAreRemoved(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Unix sockets only")
	}
	state := t.TempDir()
	alive := listen(t, state, "alive")
	answer(t, alive, 200, `{}`)
	stale := func() {
		ln, err := net.ListenUnix("unix",
			&net.UnixAddr{Name: filepath.Join(adminapi.Dir(state), "dead.sock")})
		if err != nil {
			t.Fatal(err)
		}
		ln.SetUnlinkOnClose(false)
		ln.Close()
	}
	stale()
	for _, g := range find(t, state) {
		if _, err := g.Client().Status(t.Context()); (g.ID == "dead") !=
			errors.Is(err, adminapi.ErrEnded) {
			t.Errorf("%s: %v", g.ID, err)
		}
	}
	if all := find(t, state); len(all) != 1 {
		t.Errorf("%+v", all)
	}
	stale()
	old := filepath.Join(adminapi.Dir(state), "x.sock.tmp")
	if err := os.WriteFile(old, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(old, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	adminapi.Sweep(t.Context(), state)
	entries, _ := os.ReadDir(adminapi.Dir(state))
	if len(entries) != 1 || entries[0].Name() != "alive.sock" {
		t.Errorf("%v", entries)
	}
}

// A state directory may have any path; a socket may not.
func TestSocketWithLongPath(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Unix sockets only")
	}
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	state := filepath.Join(t.TempDir(), strings.Repeat("d", 90))
	s := listen(t, state, "a")
	answer(t, s, 200, `{"gateway":{"id":"a"}}`)
	all := find(t, state)
	if len(all) != 1 || all[0].ID != "a" {
		t.Fatalf("%+v", all)
	}
	if status, err := all[0].Client().Status(t.Context()); err != nil || status.Gateway.ID != "a" {
		t.Errorf("%+v %v", status, err)
	}
	record := filepath.Join(adminapi.Dir(state), "a.json")
	if info, err := os.Stat(record); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	folders, _ := os.ReadDir(temp)
	if len(folders) != 1 {
		t.Fatalf("%v", folders)
	}
	if info, err := folders[0].Info(); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	s.Listener.Close() // as if the process was killed
	if _, err := all[0].Client().Status(t.Context()); !errors.Is(err, adminapi.ErrEnded) {
		t.Errorf("%v, want ErrEnded", err)
	}
	for _, dir := range []string{adminapi.Dir(state), temp} {
		if left, _ := os.ReadDir(dir); len(left) != 0 {
			t.Errorf("left: %v", left)
		}
	}
}

func TestDamagedRecordsAreIgnored(t *testing.T) {
	state := t.TempDir()
	listen(t, state, "a")
	for name, text := range map[string]string{
		"b.json": "{", "c.json": `{"version":99}`, "d.json": strings.Repeat(" ", 5000) + "{}",
		"e.txt": "x",
	} {
		if err := os.WriteFile(filepath.Join(adminapi.Dir(state), name), []byte(text),
			0o600); err != nil {
			t.Fatal(err)
		}
	}
	if all := find(t, state); len(all) != 1 || all[0].ID != "a" {
		t.Errorf("%+v", all)
	}
}

// The address in a record of a gateway that has ended may meanwhile be another file, which stays.
func TestOnlySocketsAreRemoved(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Unix sockets only")
	}
	state := t.TempDir()
	listen(t, state, "a")
	precious := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(precious, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	record := fmt.Sprintf(`{"version":1,"network":"unix","address":%q}`, precious)
	if err := os.WriteFile(filepath.Join(adminapi.Dir(state), "b.json"), []byte(record),
		0o600); err != nil {
		t.Fatal(err)
	}
	adminapi.Sweep(t.Context(), state)
	if _, err := os.Stat(precious); err != nil {
		t.Error(err)
	}
	if all := find(t, state); len(all) != 1 {
		t.Errorf("%+v", all)
	}
}

func TestErrorsOfTheGatewayAreReturned(t *testing.T) {
	for text, want := range map[string]string{
		`{"error":"no backend","hint":"name one"}`: "no backend",
		`garbage`: "unexpected response of the gateway: 404 Not Found",
	} {
		state := t.TempDir()
		answer(t, listen(t, state, "a"), 404, text)
		_, err := find(t, state)[0].Client().Status(t.Context())
		var refused *adminapi.APIError
		if !errors.As(err, &refused) || refused.Error() != want || refused.Status != 404 {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestLongResponse(t *testing.T) {
	state := t.TempDir()
	answer(t, listen(t, state, "a"), 200, `{"gateway":{"id":"`+strings.Repeat("x", 17<<20)+`"}}`)
	if _, err := find(t, state)[0].Client().Status(t.Context()); err == nil {
		t.Error("no error")
	}
}

// A gateway that hangs costs no more than the caller's timeout.
func TestHangingGateway(t *testing.T) {
	state := t.TempDir()
	listen(t, state, "a") // accepts nothing
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := find(t, state)[0].Client().Status(ctx)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}
