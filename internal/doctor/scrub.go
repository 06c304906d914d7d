package doctor

import (
	"strings"

	"mcpgateway/internal/lazy"
	"mcpgateway/internal/secrets"
)

var userInfo = lazy.Regexp(`:/{2}[^/?#@\s"']*@`)

// Scrub returns a text for a report that others read: user names in URLs, texts that look like
// secrets and the path of the home directory are replaced. The caller masks known secrets before.
func Scrub(text, home string) string {
	text = userInfo().ReplaceAllString(text, "://"+secrets.Redacted+"@")
	var out strings.Builder
	end := 0
	for _, s := range secrets.Find("", text) {
		out.WriteString(text[end:s.From] + secrets.Redacted)
		end = s.To
	}
	text = out.String() + text[end:]
	if len(home) > 1 {
		text = strings.ReplaceAll(text, home, "~")
	}
	return text
}

// IsSecretVariable reports whether the value of an environment variable looks like a secret.
func IsSecretVariable(name, value string) bool {
	return secrets.IsSecretName(name) || secrets.LooksSecret(value)
}
