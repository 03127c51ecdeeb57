package main

import (
	"os"
	"path/filepath"

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
	shell, err := archive.Busybox(busybox)
	if err != nil {
		return nil, err
	}
	entries = append(entries, shell...)
	files := map[string]string{"init": init}
	var needy []string
	if program != "" {
		files["usr/bin/iperf3"] = program
		needy = append(needy, program)
	}
	if program != "" && preload != "" {
		files["usr/lib/libmptcpwrap.so"] = preload
		needy = append(needy, preload)
	}
	for to, from := range files {
		file, err := archive.File(from, to)
		if err != nil {
			return nil, err
		}
		entries = append(entries, file)
	}
	libraries, err := archive.Libraries(needy...)
	return append(entries, libraries...), err
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
