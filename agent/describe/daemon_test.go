package describe

import (
	"strings"
	"testing"

	"godwit/vm"
)

// TestDaemonsDirectory: where a daemon was started is seen by what it has open, and by its monitor's socket.
func TestDaemonsDirectory(t *testing.T) {
	for _, c := range []struct {
		name, words, disk string
		open              []string
		want              string // the kernel's path; "": not known
	}{
		{"a disk", "-drive file=root.img,if=virtio", "root.img", []string{"/dev/null", "/srv/web/root.img"}, "/srv/web/vmlinuz"},
		{"one in a folder", "-drive file=./disks/root.img,if=virtio", "./disks/root.img", []string{"/srv/web/disks/root.img"}, "/srv/web/vmlinuz"},
		{"one of a block node", "-blockdev driver=file,filename=root.img", "root.img", []string{"/srv/web/root.img"}, "/srv/web/vmlinuz"},
		{"its monitor", "-qmp unix:web/qmp.sock,server=on,wait=off", "", nil, "/run/vmlinuz"},
		{"its monitor by a chardev", "-chardev socket,id=m,path=qmp.sock,server=on -mon m", "", nil, "/run/web/vmlinuz"},
		{"its console", "-serial file:console.log", "", []string{"/srv/web/console.log"}, "/srv/web/vmlinuz"},
		{"both, from one place", "-qmp unix:qmp.sock -drive file=root.img,if=virtio", "root.img", []string{"/run/web/root.img"}, "/run/web/vmlinuz"},
		{"two that differ", "-qmp unix:qmp.sock -drive file=root.img,if=virtio", "root.img", []string{"/srv/web/root.img"}, ""},
		{"whole paths alone", "-qmp unix:/run/web/qmp.sock -drive file=/srv/web/root.img,if=virtio", "/srv/web/root.img", []string{"/srv/web/root.img"}, ""},
		{"no file of that name", "-drive file=root.img,if=virtio", "root.img", []string{"/srv/web/other-root.img"}, ""},
	} {
		r := running(strings.Fields("-netdev tap,id=net0,fd=5 -daemonize -kernel vmlinuz " + c.words)...)
		r.Dir, r.Open = "/", c.open
		if c.disk != "" {
			r.Facts.Disks = []vm.Disk{{ID: "virtio0", Path: c.disk, Format: "raw"}}
		}
		found, err := Of(r)
		if err != nil {
			t.Fatal(err)
		}
		want, told := c.want, strings.Contains(strings.Join(found.Look, "\n"), "vmlinuz: where it lies is not known")
		if want == "" {
			want = "/vmlinuz"
		}
		if start := strings.Join(found.Description.Start, " "); !strings.Contains(start, "-kernel "+want+" ") || told != (c.want == "") {
			t.Errorf("%s: %s; %q", c.name, start, found.Look)
		}
	}
}
