package main

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"mcpgateway/internal/config"
)

// ancestorsEnv is an environment variable that a gateway sets for its child processes. It contains
// the identities of the configurations of its ancestors and of the gateway itself, outermost first,
// separated by commas. See docs/decisions/015-recursive-gateways.md.
const ancestorsEnv = "MCP_GATEWAY_ABOVE"

// A gateway with maxAncestors ancestors is refused. This ends loops in which no configuration
// occurs twice, such as a loop with a new configuration file for each gateway.
const maxAncestors = 8

// checkRecursion returns the value of ancestorsEnv for the child processes of a gateway with the
// configuration file source. ancestors is the value for the gateway itself. It returns an error if
// an ancestor has the same configuration, because the gateway would start itself forever, or if
// there are maxAncestors ancestors.
func checkRecursion(source, ancestors string) (string, error) {
	var chain []string
	if ancestors != "" {
		chain = strings.Split(ancestors, ",")
	}
	self := configIdentity(source)
	problem := ""
	switch {
	case len(chain) > 0 && chain[len(chain)-1] == self:
		problem = "Loop detected: this backend is the gateway itself; " +
			"remove it from the configuration"
	case slices.Contains(chain, self):
		problem = "Loop detected: this backend is a gateway that has started this one " +
			"indirectly; remove it from the configuration"
	case len(chain) >= maxAncestors:
		problem = fmt.Sprintf("Loop detected: this gateway has %d ancestors, "+
			"each a backend of the one before", len(chain))
	default:
		return strings.Join(append(chain, self), ","), nil
	}
	return "", &config.Error{File: source, Problem: problem}
}

// configIdentity returns the identity of a configuration file, which is the same for all links to
// the file. Anything other than a regular file, such as a pipe, gets a new identity each time.
func configIdentity(source string) string {
	name, err := filepath.EvalSymlinks(source)
	if err == nil {
		name, err = filepath.Abs(name)
	}
	if info, e := os.Stat(source); err != nil || e != nil || !info.Mode().IsRegular() {
		name = rand.Text()
	}
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:6])
}
