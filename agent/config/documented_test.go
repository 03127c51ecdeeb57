package config

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// keysOf are the keys of t in YAML, each with those that it is below of: dns.key.file, uplinks[].rate.
func keysOf(t reflect.Type, above string) (keys []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if name == "" || name == "-" {
			continue
		}
		of := f.Type
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice || of.Kind() == reflect.Map {
			if of.Kind() == reflect.Slice && of.Elem().Kind() == reflect.Struct {
				name += "[]"
			}
			of = of.Elem()
		}
		if of.Kind() == reflect.Struct && strings.HasPrefix(of.PkgPath(), "godwit/") && of.PkgPath() != "godwit/vm" {
			keys = append(keys, keysOf(of, above+name+".")...)
		} else {
			keys = append(keys, above+name)
		}
	}
	return keys
}

// TestKeysAreDocumented: docs/agent.md and docs/hooks.md have each key that an agent's configuration, or a guest's
// description, may have: by its whole name, or by its own where those above have a section or a row.
func TestKeysAreDocumented(t *testing.T) {
	var pages string
	for _, page := range []string{"agent.md", "hooks.md"} {
		text, err := os.ReadFile("../../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		pages += string(text)
	}
	keys := slices.Concat(keysOf(reflect.TypeFor[Config](), ""), keysOf(reflect.TypeFor[Description](), ""))
	if len(keys) < 70 {
		t.Errorf("%d keys were found: %v", len(keys), keys)
	}
	others := []string{ // not for people
		"addresses[].public", "addresses[].endpoint", // what an agent knows of one
		"peers[].uplinks[].device", // this host does not have it
		"image",                    // of a guest that the lab has an agent start
	}
	for _, key := range keys {
		own := key[strings.LastIndex(key, ".")+1:]
		found := strings.Contains(pages, "`"+strings.Replace(key, "images.", "image.", 1)+"`") // of which images.NAME has the same
		if own != key && !found {
			found = regexp.MustCompile("[`{ ]" + regexp.QuoteMeta(own) + "[`:]").MatchString(pages)
		}
		if !found && !slices.Contains(others, key) {
			t.Errorf("%s is in neither page", key)
		}
	}
}

// TestFilesAreDocumented: docs/agent.md has each file that an agent keeps in its directories.
func TestFilesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/agent.md")
	if err != nil {
		t.Fatal(err)
	}
	sources, err := filepath.Glob("../*.go")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("../*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`(StatePath\(|\bRun, |\brun, )"([^"%]+)"`)
	found := map[string]bool{}
	for _, path := range append(sources, more...) {
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		for _, m := range named.FindAllStringSubmatch(string(source), -1) {
			where := "RUN/"
			if m[1] == "StatePath(" {
				where = "STATE/"
			}
			if found[where+m[2]] = true; !strings.Contains(string(page), "`"+where+m[2]) {
				t.Errorf("%s keeps %s, which docs/agent.md does not name", path, where+m[2])
			}
		}
	}
	if len(found) < 14 {
		t.Errorf("found only %v", found)
	}
}
