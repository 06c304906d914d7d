package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"mcpgateway/internal/atomicfile"
	"mcpgateway/internal/config"
	"mcpgateway/internal/config/clientimport"
	"mcpgateway/internal/keyring"
)

// A secretDestination is where import stores the secrets of the servers.
type secretDestination interface {
	// describe returns the description for clientimport, nil if secrets are not stored. It returns
	// an error if secrets cannot be stored.
	describe() (*clientimport.SecretSource, error)
	// store stores the secrets, and returns a message about it; "" = none.
	store([]clientimport.StoredSecret) (message string, err error)
}

// secretDestinationOf returns the destination that the flags of import select.
// outputPath is the path of the configuration; "" = stdout.
func secretDestinationOf(
	useKeyring bool, envFile, outputPath string,
) (secretDestination, error) {
	switch {
	case useKeyring && envFile != "":
		return nil, usageErrorOf("gateway import",
			errors.New("--keyring and --env-file cannot be combined"))
	case useKeyring:
		return new(keyringDestination), nil
	case envFile == "":
		return noDestination{}, nil
	}
	path, err := filepath.Abs(envFile)
	if err != nil {
		return nil, err
	}
	if outputPath != "" && isSameFile(path, outputPath) {
		return nil, usageErrorOf("gateway import",
			errors.New("--env-file and --output name the same file"))
	}
	return &envFileDestination{path: path, outputPath: outputPath}, nil
}

// noDestination stores nothing: the user sets variables.
type noDestination struct{}

func (noDestination) describe() (*clientimport.SecretSource, error)     { return nil, nil }
func (noDestination) store([]clientimport.StoredSecret) (string, error) { return "", nil }

// keyringDestination stores secrets in the keyring of the operating system.
type keyringDestination struct{ secrets *keyring.Secrets }

func (d *keyringDestination) describe() (*clientimport.SecretSource, error) {
	var err error
	if d.secrets, err = userSecrets(); err != nil {
		return nil, err
	}
	if _, err := d.secrets.Names(); err != nil { // the keyring is not available
		return nil, keyringError(err)
	}
	return &clientimport.SecretSource{
		Title: "the keyring", Keyring: true,
		Value: func(name string) (string, bool) {
			value, err := d.secrets.Get(name)
			return value, err == nil // other errors recur when the secret is stored
		},
	}, nil
}

func (d *keyringDestination) store(all []clientimport.StoredSecret) (string, error) {
	for _, s := range all {
		if err := d.secrets.Set(s.Name, s.Value); err != nil {
			return "", keyringError(fmt.Errorf("%s is not stored: %w", s.Name, err))
		}
	}
	return fmt.Sprintf("secrets stored in the keyring: %d", len(all)), nil
}

// envFileDestination stores secrets in a file of env_file, and keeps what the file contains.
type envFileDestination struct {
	path, outputPath string            // outputPath: see secretDestinationOf
	text             []byte            // content of the file
	variables        map[string]string // in the file
}

// maxEnvFileText is the length, in bytes, of the longest file to which variables are added.
const maxEnvFileText = 1 << 20

func (d *envFileDestination) describe() (*clientimport.SecretSource, error) {
	text, err := atomicfile.ReadRecord(d.path, maxEnvFileText)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("%s: %s", d.path, config.SystemMessage(err))
	default:
		if d.variables, err = config.ParseEnvFile(text); err != nil {
			return nil, hintedError{
				fmt.Errorf("%s%w", d.path, err), "correct the file, or name another one",
			}
		}
	}
	d.text = text
	return &clientimport.SecretSource{
		Title: displayPath(d.path), EnvFile: strings.ReplaceAll(d.reference(), "$", "$$"),
		// A variable in the environment would take precedence.
		Value: func(name string) (string, bool) {
			inFile, there := d.variables[name]
			switch value, set := os.LookupEnv(name); {
			case set && there && value != inFile:
				return "", true // neither of the two values
			case set:
				return value, true
			}
			return inFile, there
		},
	}, nil
}

// reference returns the path of the file as written in the configuration: relative if the file is
// in the folder of the configuration, otherwise absolute.
func (d *envFileDestination) reference() string {
	if d.outputPath == "" {
		return d.path
	}
	rest, err := filepath.Rel(filepath.Dir(absolutePath(d.outputPath)), d.path)
	if err != nil || !filepath.IsLocal(rest) {
		return d.path
	}
	return filepath.ToSlash(rest)
}

func (d *envFileDestination) store(all []clientimport.StoredSecret) (string, error) {
	text := d.text
	if len(text) > 0 && text[len(text)-1] != '\n' {
		text = append(text, '\n')
	}
	added := 0
	for _, s := range all {
		if _, there := d.variables[s.Name]; there {
			continue
		}
		line, err := config.EnvFileLine(s.Name, s.Value)
		if err != nil {
			return "", err
		}
		text = append(text, line...)
		added++
	}
	err := atomicfile.Write(d.path, text, atomicfile.Options{Sync: true, FollowLink: true})
	if err != nil {
		return "", output{path: d.path}.writeError(err)
	}
	return fmt.Sprintf("wrote %s (variables added: %d), readable only for you", d.path, added), nil
}
