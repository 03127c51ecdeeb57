package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"godwit/lab/image/archive"
)

func dirOf(path string) string { return filepath.Dir(path) }

// filesOf gathers the programs: our init, busybox with a link for every applet,
// iperf3 with its libraries.
func filesOf(init, busybox, program, preload string) ([]archive.Entry, error) {
	entries := []archive.Entry{
		{Path: "etc/passwd", Mode: 0o644, Content: []byte("root:x:0:0:root:/root:/bin/sh\n")},
		{Path: "etc/hosts", Mode: 0o644, Content: []byte("127.0.0.1 localhost guest\n::1 localhost guest\n")},
	}
	add := func(from, to string) error {
		content, err := os.ReadFile(from)
		if err == nil {
			entries = append(entries, archive.Entry{Path: to, Mode: 0o755, Content: content})
		}
		return err
	}
	if err := add(init, "init"); err != nil {
		return nil, err
	}
	if err := add(busybox, "bin/busybox"); err != nil {
		return nil, err
	}
	applets, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("list applets of %s: %w", busybox, err)
	}
	for _, applet := range strings.Fields(string(applets)) {
		if applet != "busybox" {
			entries = append(entries, archive.Entry{Path: "bin/" + applet, Target: "busybox"})
		}
	}
	if program == "" {
		return entries, nil
	}
	if err := add(program, "usr/bin/iperf3"); err != nil {
		return nil, err
	}
	libraries, err := librariesOf(program)
	if err != nil {
		return nil, err
	}
	if preload != "" {
		if err := add(preload, "usr/lib/libmptcpwrap.so"); err != nil {
			return nil, err
		}
		more, err := librariesOf(preload)
		if err != nil {
			return nil, err
		}
		libraries = append(libraries, more...)
	}
	slices.Sort(libraries)
	for _, library := range slices.Compact(libraries) {
		// Where the program's loader looks: by the path that ldd says.
		if err := add(library, strings.TrimPrefix(library, "/")); err != nil {
			return nil, err
		}
	}
	return entries, nil
}

// helperOf gathers what a system on a disk of its own does not have: our program,
// its first process and then its helper, and the helper's unit.
func helperOf(init, unit string) ([]archive.Entry, error) {
	program, err := os.ReadFile(init)
	if err != nil {
		return nil, err
	}
	service, err := os.ReadFile(unit)
	if err != nil {
		return nil, err
	}
	return []archive.Entry{
		{Path: "init", Mode: 0o755, Content: program},
		{Path: "godwit-guest.service", Mode: 0o644, Content: service},
	}, nil
}

var libraryPath = regexp.MustCompile(`(?m)(?:=>\s+|^\s+)(/\S+) \(0x`)

// librariesOf lists the shared libraries, loader included, that a program needs.
func librariesOf(program string) ([]string, error) {
	out, err := exec.Command("ldd", program).Output()
	if err != nil {
		return nil, fmt.Errorf("find libraries of %s: %w", program, err)
	}
	var paths []string
	for _, match := range libraryPath.FindAllStringSubmatch(string(out), -1) {
		paths = append(paths, match[1])
	}
	return paths, nil
}
