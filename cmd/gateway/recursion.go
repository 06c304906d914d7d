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

// ancestorsEnv is how a gateway tells the processes that it starts of which configurations
// there are gateways above them: their identities, the outermost first, with commas.
// See docs/decisions/015-recursive-gateways.md.
const ancestorsEnv = "MCP_GATEWAY_ABOVE"

// maxAncestors bounds how many gateways may stand above one. It ends the loops in which no
// configuration comes twice, such as one that is written anew for each.
const maxAncestors = 8

// checkRecursion returns what the processes are told, by ancestorsEnv, that a gateway starts whose
// configuration is the file source; above is what it was told itself. It is an error if
// there is a gateway of the same configuration above: it would start itself for ever.
func checkRecursion(source, above string) (string, error) {
	var chain []string
	if above != "" {
		chain = strings.Split(above, ",")
	}
	self := configIdentity(source)
	problem := ""
	switch {
	case len(chain) > 0 && chain[len(chain)-1] == self:
		problem = "Loop detected: this backend is the gateway itself; take it out of the configuration"
	case slices.Contains(chain, self):
		problem = "Loop detected: this backend is a gateway that stands further up; take it out of the configuration"
	case len(chain) >= maxAncestors:
		problem = fmt.Sprintf("Loop detected: %d gateways stand above this one, each a backend of the one before", len(chain))
	default:
		return strings.Join(append(chain, self), ","), nil
	}
	return "", &config.Error{File: source, Problem: problem}
}

// configIdentity returns what stands for a configuration. It is the same for all ways to name
// the file; what is no file, such as a pipe, has one of its own each time.
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
