package archive

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

// File is a copy of the executable file from, at the path to.
func File(from, to string) (Entry, error) {
	content, err := os.ReadFile(from)
	return Entry{Path: to, Mode: 0o755, Content: content}, err
}

// Busybox is a static busybox with a link in bin for every applet.
func Busybox(path string) ([]Entry, error) {
	program, err := File(path, "bin/busybox")
	if err != nil {
		return nil, err
	}
	applets, err := exec.Command(path, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("list applets of %s: %w", path, err)
	}
	entries := []Entry{program}
	for _, applet := range strings.Fields(string(applets)) {
		if applet != "busybox" {
			entries = append(entries, Entry{Path: "bin/" + applet, Target: "busybox"})
		}
	}
	return entries, nil
}

var libraryPath = regexp.MustCompile(`(?m)(?:=>\s+|^\s+)(/\S+) \(0x`)

// Libraries are the shared libraries, loader included, that programs need, each once and
// where their loader looks: by the path that ldd says.
func Libraries(programs ...string) ([]Entry, error) {
	var paths []string
	for _, program := range programs {
		out, err := exec.Command("ldd", program).Output()
		if err != nil {
			return nil, fmt.Errorf("find libraries of %s: %w", program, err)
		}
		for _, match := range libraryPath.FindAllStringSubmatch(string(out), -1) {
			paths = append(paths, match[1])
		}
	}
	slices.Sort(paths)
	var entries []Entry
	for _, path := range slices.Compact(paths) {
		library, err := File(path, strings.TrimPrefix(path, "/"))
		if err != nil {
			return nil, err
		}
		entries = append(entries, library)
	}
	return entries, nil
}
