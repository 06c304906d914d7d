// Package gosource parses the Go files of this module, for tests of rules that the compiler does
// not check.
package gosource

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// File is a parsed Go file.
type File struct {
	// directory, relative to the root of the module, with slashes; "." = root
	Dir    string
	Path   string // path, relative to the root of the module, with slashes
	Text   []byte
	Syntax *ast.File
	Set    *token.FileSet // positions of Syntax
}

// IsTest reports whether the file is compiled for tests only.
func (f *File) IsTest() bool { return strings.HasSuffix(f.Path, "_test.go") }

// Position returns the path and line of pos.
func (f *File) Position(pos token.Pos) string {
	at := f.Set.Position(pos)
	return f.Path + ":" + strconv.Itoa(at.Line)
}

// Files returns all Go files of the module that contains the working directory, for all operating
// systems and build tags, except files in testdata and node_modules. It fails the test if a file
// cannot be parsed.
func Files(t *testing.T) []*File {
	t.Helper()
	files, err := parseAll()
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// Root returns the path of the directory that contains go.mod.
func Root(t *testing.T) string {
	t.Helper()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	return root
}

var moduleRoot = sync.OnceValues(func() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fs.ErrNotExist
		}
		dir = parent
	}
})

var parseAll = sync.OnceValues(func() (files []*File, err error) {
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	set := token.NewFileSet()
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() &&
			(d.Name() == "node_modules" || d.Name() == "testdata" || d.Name() == ".git"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		syntax, err := parser.ParseFile(set, path, text, parser.ParseComments)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		relative = filepath.ToSlash(relative)
		files = append(files, &File{
			Dir: filepath.ToSlash(filepath.Dir(relative)), Path: relative, Text: text,
			Syntax: syntax, Set: set,
		})
		return nil
	})
	return files, err
})
