package main

import (
	"path/filepath"
	"strings"

	"mcpgateway/internal/config"
	"mcpgateway/internal/text"
)

// adminTokenFile is the name of the file, in the state directory, with the admin token.
const adminTokenFile = "admin-token"

// adminTokenPath returns the path of the file with the admin token.
func adminTokenPath(c *config.Config) string { return filepath.Join(c.StateDir, adminTokenFile) }

// openAdminToken reads or creates the admin token if admin.listen is set. It logs an error; the
// admin API is then not served over HTTP.
func (a *app) openAdminToken() {
	if a.Config.Admin.Listen == "" {
		return
	}
	path := adminTokenPath(a.Config)
	token, err := (&autoToken{log: a.log}).readOrCreate(path)
	if err != nil {
		a.log.Error("no admin token: the admin API is not served at admin.listen", "err", err)
		return
	}
	a.adminToken = token
	a.mask.Add(token)
}

// adminTokenHint returns how the user gets the admin token, which the log must not contain.
func adminTokenHint(c *config.Config) string {
	return "the token: cat " + text.ShellWord(adminTokenPath(c))
}

// adminSecrets returns the admin token as a list of secrets.
func (a *app) adminSecrets() []string {
	if a.adminToken == "" {
		return nil
	}
	return strings.Fields(a.adminToken)
}
