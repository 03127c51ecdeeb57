// Command build makes the initial file system of the lab's guests. It is called by
// scripts/guest-image, which has fetched and unpacked what goes in:
//
//	build -init guest -modules lib/modules/6.1.0-1-cloud-amd64 -busybox busybox \
//	      -program /usr/bin/iperf3 -preload libmptcpwrap.so.0 -out initrd.img
//
// or, for a guest whose system is on a disk of its own (scripts/debian-image):
//
//	build -init guest -modules lib/modules/6.1.0-1-cloud-amd64 -unit godwit-guest.service -out initrd.img
//
// The same input gives the same bytes.
package main

import (
	"flag"
	"fmt"
	"os"

	"godwit/lab/image/archive"
)

// wanted are the modules that a guest needs, where its kernel has them as modules.
var wanted = []string{
	"virtio_pci", "virtio_net", "virtio_console", "virtio_blk",
	"inet_diag", "tcp_diag", "udp_diag", "mptcp_diag",
}

// input names what goes into an image.
type input struct {
	init, modules, busybox, program, preload, unit string
}

func main() {
	var in input
	flag.StringVar(&in.init, "init", "", "the static first process (cmd/guest)")
	flag.StringVar(&in.modules, "modules", "", "folder of the kernel's modules, uncompressed")
	flag.StringVar(&in.busybox, "busybox", "", "a static busybox")
	flag.StringVar(&in.program, "program", "", "iperf3; its libraries are found with ldd")
	flag.StringVar(&in.preload, "preload", "", "libmptcpwrap.so, which makes iperf3's sockets MPTCP")
	flag.StringVar(&in.unit, "unit", "", "the helper's systemd unit, for a system on a disk of its own; then no busybox and iperf3")
	out := flag.String("out", "", "the file to write")
	flag.Parse()
	if err := build(in, *out); err != nil {
		fmt.Fprintln(os.Stderr, "guest-image:", err)
		os.Exit(1)
	}
}

// build writes the whole image, or leaves what was at out before.
func build(in input, out string) error {
	entries := []archive.Entry{
		{Path: "dev/console", Mode: 0o600, Device: &archive.Device{Major: 5, Minor: 1}},
		{Path: "dev/null", Mode: 0o666, Device: &archive.Device{Major: 1, Minor: 3}},
	}
	for _, folder := range []string{"proc", "sys", "tmp", "run", "etc", "root"} {
		entries = append(entries, archive.Entry{Path: folder, Mode: 0o755, Folder: true})
	}
	modules := wanted
	gather := func() ([]archive.Entry, error) { return filesOf(in.init, in.busybox, in.program, in.preload) }
	if in.unit != "" {
		modules = append(modules, "squashfs", "overlay")
		gather = func() ([]archive.Entry, error) { return helperOf(in.init, in.unit) }
	}
	files, err := gather()
	if err != nil {
		return err
	}
	drivers, err := archive.Modules(in.modules, modules)
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
