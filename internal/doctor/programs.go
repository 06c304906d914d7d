package doctor

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"mcpgateway/internal/config"
	"mcpgateway/internal/lazy"
	"mcpgateway/internal/procgroup"
)

const (
	versionTimeout = 5 * time.Second // of a program that is asked for its version
	maxVersionText = 4 << 10         // kept bytes of its output
)

// runtimes are the programs whose version is asked for. The value is the oldest version that works
// with usual servers: that of the official SDK; nil = it is not known.
var runtimes = map[string][]int{
	"node": {18}, "npx": nil, "npm": nil, "uv": nil, "uvx": nil, "python": {3, 10},
	"python3": {3, 10}, "docker": nil, "podman": nil, "deno": nil, "bun": nil, "bunx": nil,
}

// install is how to get a program.
var install = map[string]string{
	"node": "install Node.js: https://nodejs.org", "npx": "install Node.js: https://nodejs.org",
	"npm": "install Node.js: https://nodejs.org",
	"uv":  "install uv: https://docs.astral.sh/uv", "uvx": "install uv: https://docs.astral.sh/uv",
	"docker": "install Docker: https://docs.docker.com", "podman": "install Podman: https://podman.io",
	"deno": "install Deno: https://deno.com", "bun": "install Bun: https://bun.sh",
	"bunx": "install Bun: https://bun.sh",
}

// A need is a program and the backends that need it with one PATH.
type need struct {
	program, path, cwd string
	backends           []string
}

// CheckPrograms checks the programs of the enabled backends: whether they are found, and the
// versions of the usual ones, each of which is started at the same time and killed after 5 s.
func CheckPrograms(ctx context.Context, all []config.Backend) []DoctorFinding {
	var needs []need
	for _, b := range all {
		if !b.Enabled || b.Misconfigured != "" || b.Command == "" {
			continue
		}
		names := []string{b.Command}
		if base := baseName(b.Command); base == "npx" || base == "npm" {
			names = append(names, "node")
		}
		for _, name := range names {
			n := need{name, b.Env["PATH"], b.Cwd, nil}
			same := func(o need) bool {
				return o.program == n.program && o.path == n.path && o.cwd == n.cwd
			}
			i := slices.IndexFunc(needs, same)
			if i < 0 {
				i, needs = len(needs), append(needs, n)
			}
			needs[i].backends = append(needs[i].backends, b.Name)
		}
	}
	results := make([]findingList, len(needs))
	var running sync.WaitGroup
	slots := make(chan struct{}, 4)
	for i, n := range needs {
		running.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			results[i].subject = Programs
			n.check(ctx, &results[i])
		})
	}
	running.Wait()
	f := findingList{subject: Programs}
	for _, r := range results {
		f.all = append(f.all, r.all...)
	}
	return f.all
}

func (n need) check(ctx context.Context, f *findingList) {
	who := "backend " + strings.Join(n.backends, ", ")
	base := baseName(n.program)
	file, err := n.find()
	if err != nil {
		next := install[base]
		if next == "" {
			next = "install " + base + ", or write its absolute path as command of " + who
		}
		f.add(Problem, next, "%s is not found in PATH; %s needs it", n.program, who)
		return
	}
	oldest, known := runtimes[base]
	if !known {
		f.add(OK, "", "%s for %s", file, who)
		return
	}
	text, err := Output(ctx, file, "--version")
	found := versionIn(text)
	switch {
	case err != nil || found == nil:
		f.add(Warning, file+" --version", "%s does not print its version; %s needs it", file, who)
	case oldest != nil && slices.Compare(found, oldest) < 0:
		f.add(Warning, install[base], "%s %s is older than %s, which most servers need; %s needs it",
			file, dotted(found), dotted(oldest), who)
	default:
		f.add(OK, "", "%s %s for %s", file, dotted(found), who)
	}
}

// find returns the path of the program.
func (n need) find() (string, error) {
	isPath := strings.ContainsRune(n.program, '/') ||
		strings.ContainsRune(n.program, filepath.Separator)
	switch {
	case isPath && !filepath.IsAbs(n.program) && n.cwd != "":
		return exec.LookPath(filepath.Join(n.cwd, n.program))
	case isPath || n.path == "":
		return exec.LookPath(n.program)
	}
	for _, dir := range filepath.SplitList(n.path) {
		if file, err := exec.LookPath(filepath.Join(dir, n.program)); err == nil {
			return file, nil
		}
	}
	return "", os.ErrNotExist
}

// baseName returns the name of a program without its folder and .exe or .cmd.
func baseName(program string) string {
	base := strings.ToLower(filepath.Base(program))
	return strings.TrimSuffix(strings.TrimSuffix(base, ".exe"), ".cmd")
}

// Output runs a program without input and returns the beginning of its stdout. The program is
// killed after 5 s.
func Output(ctx context.Context, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	cmd := exec.Command(program, args...)
	out := new(prefixBuffer)
	cmd.Stdout, cmd.WaitDelay = out, time.Second
	err := procgroup.Run(ctx, cmd)
	return out.String(), err
}

// A prefixBuffer keeps the first maxVersionText bytes.
type prefixBuffer struct{ text bytes.Buffer }

// Write implements io.Writer.
func (b *prefixBuffer) Write(p []byte) (int, error) {
	b.text.Write(p[:min(len(p), maxVersionText-b.text.Len())])
	return len(p), nil
}

func (b *prefixBuffer) String() string { return b.text.String() }

var versionText = lazy.Regexp(`(\d+)\.(\d+)(?:\.(\d+))?`)

// versionIn returns the first version in a text; nil = there is none.
func versionIn(text string) (numbers []int) {
	for i, part := range versionText().FindStringSubmatch(text) {
		if n, err := strconv.Atoi(part); i > 0 && err == nil {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

func dotted(numbers []int) string {
	var all []string
	for _, n := range numbers {
		all = append(all, strconv.Itoa(n))
	}
	return strings.Join(all, ".")
}
