//go:build unix

package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// gatewayEnv may name the binary under test (for example one built with -race).
const gatewayEnv = "INTEGRATION_GATEWAY"

// gateway returns the path of the binary under test: the value of gatewayEnv, or else
// cmd/gateway, built once.
func gateway(t testing.TB) string {
	t.Helper()
	path, err := buildGateway()
	if err != nil {
		t.Fatalf("integration: %v", err)
	}
	return path
}

var buildGateway = sync.OnceValues(func() (string, error) {
	if path := os.Getenv(gatewayEnv); path != "" {
		return filepath.Abs(path)
	}
	root := filepath.Dir(packageDir)
	if _, err := os.Stat(filepath.Join(root, "cmd", "gateway")); err != nil {
		return "", fmt.Errorf("no gateway to test: %w", err)
	}
	path := filepath.Join(workDir, "bin", "gateway")
	cmd := exec.Command("go", "build", "-o", path, "./cmd/gateway")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build ./cmd/gateway: %w\n%s", err, out)
	}
	return path, nil
})
