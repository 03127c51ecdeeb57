// Command build makes the initial file system of the lab's guests. It is called by
// scripts/guest-image, which has fetched and unpacked what goes in:
//
//	build -init guest -modules lib/modules/6.1.0-1-cloud-amd64 -busybox busybox \
//	      -program /usr/bin/iperf3 -preload libmptcpwrap.so.0 -out initrd.img
//
// The same input gives the same bytes.
package main

import (
	"flag"
	"fmt"
	"os"

	"godwit/lab/image/archive"
)

func main() {
	init := flag.String("init", "", "the static first process (cmd/guest)")
	modules := flag.String("modules", "", "folder of the kernel's modules, uncompressed")
	busybox := flag.String("busybox", "", "a static busybox")
	program := flag.String("program", "", "iperf3; its libraries are found with ldd")
	preload := flag.String("preload", "", "libmptcpwrap.so, which makes iperf3's sockets MPTCP")
	out := flag.String("out", "", "the file to write")
	flag.Parse()
	if err := build(*init, *modules, *busybox, *program, *preload, *out); err != nil {
		fmt.Fprintln(os.Stderr, "guest-image:", err)
		os.Exit(1)
	}
}

// build writes the whole image, or leaves what was at out before.
func build(init, modules, busybox, program, preload, out string) error {
	entries := []archive.Entry{
		{Path: "dev/console", Mode: 0o600, Device: &archive.Device{Major: 5, Minor: 1}},
		{Path: "dev/null", Mode: 0o666, Device: &archive.Device{Major: 1, Minor: 3}},
	}
	for _, folder := range []string{"proc", "sys", "tmp", "run", "etc", "root"} {
		entries = append(entries, archive.Entry{Path: folder, Mode: 0o755, Folder: true})
	}
	files, err := filesOf(init, busybox, program, preload)
	if err != nil {
		return err
	}
	drivers, err := modulesOf(modules, wanted)
	if err != nil {
		return err
	}
	entries = append(append(entries, files...), drivers...)
	file, err := os.CreateTemp(dirOf(out), ".initrd-*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	if err := archive.Write(file, entries); err != nil {
		file.Close()
		return err
	}
	if err := file.Chmod(0o644); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	return os.Rename(file.Name(), out)
}
