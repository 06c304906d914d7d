//go:build unix

package integration

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"mcpgateway/internal/mcptest/oidctest"
)

// A secretSearch knows the secrets of all tests, and searches everything for them that the gateway
// writes: at the end of a test its files, after a command its output, and at the end of the run the
// command lines of all processes (processSampler). A secret in any of these is a fault of the
// gateway. Its methods may be called concurrently.
type secretSearch struct {
	mu        sync.Mutex
	index     *secretIndex
	providers map[*oidctest.Provider]string // running authorization servers, with their tests
	inputs    map[string]bool               // files and directories of tests, with secrets
	watched   map[string]bool               // directories that are searched at the end of a test
	scanned   searchAmount
}

// searchAmount is how much was searched.
type searchAmount struct {
	files, bytes int
	took         time.Duration
}

func newSecretSearch() *secretSearch {
	return &secretSearch{index: newSecretIndex(), inputs: make(map[string]bool),
		providers: make(map[*oidctest.Provider]string), watched: make(map[string]bool)}
}

// everySecret has the secrets of this run of the tests.
var everySecret = newSecretSearch()

// A finding is a secret at a place where it must not be.
type finding struct {
	place  string
	secret *knownSecret // nil: a file with secrets, or an error
	detail string       // the beginning of the line, or the reason without a secret
}

func (f finding) String() string {
	if f.secret == nil {
		return f.place + ": " + f.detail
	}
	return fmt.Sprintf("%s: contains the secret %q of %s, in a line that begins with %q", f.place,
		f.secret.name, f.secret.test, f.detail)
}

// secret returns a new secret, and registers it: nothing that the gateway writes may contain it.
// It has the form of several words, which the gateway hides only if it knows that they are secret.
func secret(t testing.TB, name string) string {
	return registerSecret(t, name, newSecretValue())
}

func newSecretValue() string {
	text := strings.Map(func(r rune) rune {
		if r < 'A' {
			return r - '2' + 'a'
		}
		return r - 'A' + 'a'
	}, rand.Text())
	return text[:7] + "-" + text[7:14] + "-" + text[14:]
}

// registerSecret does the same for a value that the test has chosen, and returns it.
func registerSecret(t testing.TB, name, value string) string {
	t.Helper()
	if len(value) < minSecret {
		t.Fatalf("the secret %s is too short for a search", name)
	}
	everySecret.add(value, &knownSecret{t.Name(), name, inEnvironment})
	return value
}

// secretArgument is like secret, for a value that the configuration passes to a program as an
// argument: command lines may contain it.
func secretArgument(t testing.TB, name string) string {
	value := newSecretValue()
	everySecret.add(value, &knownSecret{t.Name(), name, inArguments})
	return value
}

// newProvider starts an authorization server. Everything secret that it issues is registered.
func newProvider(t testing.TB, o oidctest.Options) *oidctest.Provider {
	t.Helper()
	p := oidctest.New(t, o)
	everySecret.addProvider(t.Name(), p)
	t.Cleanup(func() { everySecret.removeProvider(p) })
	return p
}

// hasSecrets declares that a file, or the files in a directory, are not the gateway's and may have
// secrets.
func hasSecrets(path string) { everySecret.addInput(path) }

// searchAtEnd searches the files in the temporary directories of the test at its end. dir is one of
// them.
func searchAtEnd(t testing.TB, dir string) {
	all := filepath.Dir(dir) // testing.T has one directory for all that TempDir returns
	if !everySecret.watch(all) {
		return
	}
	t.Cleanup(func() {
		for _, f := range everySecret.searchFiles(t.Name(), all) {
			t.Errorf("%v", f)
		}
	})
}

// searchText fails the test if text, which the gateway has written, contains a secret.
func searchText(t testing.TB, place string, text []byte) {
	t.Helper()
	for _, f := range everySecret.searchText(place, text) {
		t.Errorf("%v", f)
	}
}

func (s *secretSearch) add(value string, secret *knownSecret) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.index.add(value, secret)
}

func (s *secretSearch) addInput(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inputs[path] = true
}

func (s *secretSearch) isInput(path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inputs[path]
}

func (s *secretSearch) addProvider(test string, p *oidctest.Provider) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.providers[p] = test
}

func (s *secretSearch) removeProvider(p *oidctest.Provider) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addIssuedLocked(p)
	delete(s.providers, p)
}

// addIssuedLocked adds what a provider has issued until now.
func (s *secretSearch) addIssuedLocked(p *oidctest.Provider) {
	for _, value := range p.Secrets() {
		s.index.add(value, &knownSecret{s.providers[p], "issued by the authorization server",
			nowhere})
	}
}

// watch reports whether it is the first call for this directory.
func (s *secretSearch) watch(dir string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watched[dir] {
		return false
	}
	s.watched[dir] = true
	return true
}

// searchText returns the secrets in a text.
func (s *secretSearch) searchText(place string, text []byte) (all []finding) {
	return s.search(place, text, elsewhere)
}

// search returns the secrets in a text that are not permitted there.
func (s *secretSearch) search(place string, text []byte, where secretPlace) (all []finding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	began := time.Now()
	for p := range s.providers {
		s.addIssuedLocked(p)
	}
	for secret, at := range s.index.find(text) {
		line := text[bytes.LastIndexByte(text[:at], '\n')+1 : at]
		line = line[:min(len(line), 80)]
		if where != elsewhere || s.index.find(line) != nil {
			line = nil // variables of the environment, or another secret
		}
		if secret.permitted < where {
			all = append(all, finding{place, secret, string(line)})
		}
	}
	slices.SortFunc(all, func(a, b finding) int { return strings.Compare(a.String(), b.String()) })
	s.scanned.files++
	s.scanned.bytes += len(text)
	s.scanned.took += time.Since(began)
	return all
}

// searchFiles returns the secrets in the files below dir, without files that have secrets on
// purpose. Such files of the gateway must be readable for their owner only.
func (s *secretSearch) searchFiles(test, dir string) (all []finding) {
	var open []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // a program of the test still runs
		case err != nil:
			return err
		case d.IsDir() && s.isInput(path):
			return filepath.SkipDir
		case !d.Type().IsRegular() || isConfiguration(path) || s.isInput(path):
			return nil
		case !isPrivate(path):
			open = append(open, path)
			return nil
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm() != 0o600 {
			all = append(all, finding{place: path, detail: "a file with secrets has the mode " + info.Mode().String()})
		}
		s.addStored(test, path)
		return err
	})
	if err != nil {
		all = append(all, finding{place: dir, detail: err.Error()})
	}
	for _, path := range open {
		text, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			all = append(all, finding{place: path, detail: err.Error()})
		}
		all = append(all, s.searchText(path, text)...)
	}
	return all
}

// isConfiguration reports whether a file is the configuration of a gateway, which the user writes.
func isConfiguration(path string) bool {
	return filepath.Base(path) == "gateway.yaml" || filepath.Base(path) == "gateway.yaml.new"
}

// isPrivate reports whether the gateway or the keyring stores secrets in a file: a login, the
// generated token of clients or the admin token, a file that gateway import --env-file writes, or
// the keyring.
func isPrivate(path string) bool {
	dir, name := filepath.Base(filepath.Dir(path)), filepath.Base(path)
	return dir == "logins" && filepath.Ext(name) == ".json" || dir == "state" && isTokenFile(path) ||
		filepath.Ext(name) == ".env" || dir == "keyrings" && filepath.Ext(name) == ".keyring"
}

// isTokenFile reports whether a file has the token of clients or the admin token.
func isTokenFile(path string) bool {
	return filepath.Base(path) == "token" || filepath.Base(path) == "admin-token"
}

// addStored adds the secrets that the gateway has stored in a private file.
func (s *secretSearch) addStored(test, path string) {
	text, err := os.ReadFile(path)
	if err != nil {
		return // the search of the logs does not depend on it
	}
	name := "stored in " + filepath.Base(path)
	if isTokenFile(path) {
		s.add(strings.TrimSpace(string(text)), &knownSecret{test, name, nowhere})
	}
	var login struct{ Secrets map[string]string }
	if json.Unmarshal(text, &login) == nil {
		for key, value := range login.Secrets {
			s.add(value, &knownSecret{test, key + " " + name, nowhere})
		}
	}
}

// finish searches what the sampler has seen, writes a summary, and returns the exit code of the
// run, which is code if nothing is found.
func (s *secretSearch) finish(p *processSampler, code int, report func(string)) int {
	commands, environments, n, err := p.texts()
	all := append(s.search("the command line of a process", commands, inArguments),
		s.search("the environment of a process", environments, inEnvironment)...)
	if err != nil {
		all = append(all, finding{place: "the processes", detail: err.Error()})
	}
	for _, f := range all {
		report(f.String())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	report(fmt.Sprintf("searched for %d secrets in %d texts (%d MB) and %d texts of processes: %v",
		len(s.index.values), s.scanned.files, s.scanned.bytes>>20, n,
		s.scanned.took.Round(time.Millisecond)))
	if len(all) > 0 && code == 0 {
		return 1
	}
	return code
}
