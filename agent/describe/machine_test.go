package describe

import (
	"strings"
	"testing"
)

// TestProcessorsPluggedInLater: a person is told of processors that the command line does not have.
func TestProcessorsPluggedInLater(t *testing.T) {
	for _, c := range []struct {
		words string
		has   int
		told  bool
	}{
		{"", 1, false},
		{"-smp 2", 2, false},
		{"-smp 2,maxcpus=4", 2, false},
		{"-smp 2,maxcpus=4", 3, true},
		{"-smp cpus=2,maxcpus=4", 3, true},
		{"-smp sockets=2,cores=2", 4, false},
		{"-smp maxcpus=4", 4, false}, // as many as there may be
		{"-machine q35,smp.cpus=4", 4, false},
		{"-machine q35,smp.cpus=2,smp.maxcpus=4", 3, true},
		{"-machine q35,smp.sockets=2,smp.cores=2", 4, false},
		{"-machine q35 -smp 2", 2, false},
		{"-smp 2,maxcpus=4 -machine q35", 3, true},
		{"-smp 1,maxcpus=4 -device host-x86_64-cpu,socket-id=0,core-id=1,thread-id=0", 2, false},
		{"-smp 1,maxcpus=4 -device host-x86_64-cpu,socket-id=0,core-id=1,thread-id=0", 3, true},
	} {
		r := running(strings.Fields("-netdev tap,id=net0,fd=5 " + c.words)...)
		r.Facts.VCPUs = c.has
		found, err := Of(r)
		if err != nil {
			t.Fatal(err)
		}
		if told := strings.Contains(strings.Join(found.Look, "\n"), "processors were plugged in later; add"); told != c.told {
			t.Errorf("%q, and %d processors: %q", c.words, c.has, found.Look)
		}
	}
	r := running("-smp", "2,maxcpus=6")
	r.Facts.VCPUs, r.Facts.CPUs = 3, []int{0, 1, 4}
	if found, err := Of(r); err != nil || !strings.Contains(strings.Join(found.Look, "\n"), "1 of its 3 processors were plugged in later; add the -device of each to start, or have -smp there say 5 at least") {
		t.Errorf("%q, %v", found.Look, err)
	}
}

// TestMemoryInAFile: a person is told of the file that memory is in, which is none to be copied to a destination.
func TestMemoryInAFile(t *testing.T) {
	for words, want := range map[string]string{
		"memory-backend-file,id=m,size=1G,mem-path=/srv/web.mem,share=on":                         "its memory is in /srv/web.mem: ",
		"memory-backend-file,id=m,size=1G,mem-path=/dev/shm/web":                                  "its memory is in /dev/shm/web: ",
		"memory-backend-file,id=m,size=1G,mem-path=web.mem":                                       "its memory is in /home/op/web.mem: ",
		`{"qom-type":"memory-backend-file","id":"m","size":1073741824,"mem-path":"/srv/m"}`:       "its memory is in /srv/m: ",
		"memory-backend-file,id=m,size=1G,mem-path=/dev/hugepages/libvirt/qemu/1-web,prealloc=on": "each destination must have the same: /dev/hugepages/libvirt/qemu/1-web",
		"memory-backend-file,id=m,size=1G,mem-path=/dev/hugepages":                                "",
		"memory-backend-memfd,id=m,size=1G":                                                       "",
	} {
		found, err := Of(running(append(strings.Fields("-netdev tap,id=net0,fd=5 -object"), words)...))
		if err != nil {
			t.Fatal(err)
		}
		var told []string
		for _, line := range found.Look {
			if strings.Contains(line, "memory") || strings.Contains(line, "must have") {
				told = append(told, line)
			}
		}
		if got := strings.Join(told, "; "); !strings.HasPrefix(got, want) || len(told) != min(len(want), 1) {
			t.Errorf("%s: told %q, want %q", words, got, want)
		}
		if start := strings.Join(found.Description.Start, " "); strings.Contains(start, "=web.mem") {
			t.Errorf("%s: started with %s", words, start)
		}
	}
}
