//go:build unix

package child

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The error for a command that is not found contains the PATH.
func TestPathInError_F_CLI_7(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "plain"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("/a-long-directory:", 100) + "/last"
	for name, c := range map[string]struct {
		command string
		env     []string
		want    string
	}{
		"F-CLI-7 the PATH of the child": {"npx",
			[]string{"HOME=/home/me", "PATH=/usr/none:/home/me/bin:/home/me:/home/melon/bin"},
			`command "npx" is in no directory of its PATH (/usr/none:~/bin:~:/home/melon/bin): install it, write its full path, or set PATH in env of this backend`},
		"F-CLI-7 an empty PATH": {"npx", []string{"PATH="}, `(it is empty): install`},
		"F-CLI-7 a long PATH": {"npx", []string{"PATH=" + long},
			`:/a-long-directory and 79 more): install`},
		"F-CLI-7 one long directory": {"npx", []string{"PATH=/" + strings.Repeat("x", 5000)},
			`(too long to show): install`},
		"F-CLI-7 control characters": {"npx", []string{"PATH=/a\x1b[31m\n:/b"},
			`(/a?[31m?:/b): install`},
		"F-CLI-7 a file that cannot run": {"plain", []string{"PATH=/none:" + dir},
			`command "` + dir + `/plain" cannot be executed`},
		"F-CLI-7 the home of the gateway": {"npx", []string{"PATH=" + os.Getenv("HOME") + "/none"},
			`(~/none): install`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := lookPath(c.command, "", c.env)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}
