package main

import (
	"debug/elf"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// TestBinariesAreStatic: what `make build` makes runs on any Linux of its processor, whatever libraries that has.
func TestBinariesAreStatic(t *testing.T) {
	for _, name := range []string{"godwit", "godwit-guest"} {
		f, err := elf.Open(filepath.Join("../../bin", name))
		if os.IsNotExist(err) {
			t.Skip(err) // scripts/test has built it
		}
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		libraries, err := f.ImportedLibraries()
		loaded := slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
		if err != nil || len(libraries) > 0 || loaded {
			t.Errorf("%s: needs %q, has a loader: %v, %v", name, libraries, loaded, err)
		}
	}
}

// TestNoHostIsNamed: what builds and installs asks whom the machine is set up to ask for packages and modules. The path
// of a module is no host that is asked.
func TestNoHostIsNamed(t *testing.T) {
	host, module := regexp.MustCompile(`://|\b[a-z0-9-]+\.(org|com|net|io|dev)\b`), regexp.MustCompile(`go install "[^"]*"`)
	files, err := filepath.Glob("../../scripts/*")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range append(files, "../../Makefile", "../../.ci/run") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if named := host.FindAll(module.ReplaceAll(text, nil), -1); named != nil {
			t.Errorf("%s: names %q", file, named)
		}
	}
}
