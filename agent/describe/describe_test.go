package describe

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"godwit/agent/config"
	"godwit/vm"
	"godwit/vm/qemu"
)

// running is a guest of 256 MiB with a card on netdev net0, started so in /home/op.
func running(words ...string) Running {
	return Running{
		QMP: "/run/web/qmp.sock", Dir: "/home/op", Words: append([]string{"qemu-system-x86_64"}, words...), Taps: map[int]string{5: "tap-web"},
		Facts: vm.Facts{Name: "web", Machine: "pc-q35-10.0", Base: 256 << 20},
		Cards: []qemu.Card{{MAC: "52:54:00:00:01:0a", Netdev: "net0"}},
	}
}

// loads makes sure that the file says the same.
func loads(t *testing.T, found Found) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "web.yaml")
	text := strings.ReplaceAll(found.YAML(), "addresses:\n  - {prefix: }", "#")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := config.LoadDescription(file)
	if err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	if !reflect.DeepEqual(d, found.Description) {
		t.Errorf("read: %+v\nmade: %+v", d, found.Description)
	}
}

func TestStartedElsewhere(t *testing.T) {
	with := "-machine pc-q35-10.0 -m {memory} -netdev tap,id=net0,fd={fd0} -device virtio-net-pci,netdev=net0 -display none"
	tests := []struct {
		name  string
		words string // added to a machine, memory, a card and no display
		disks []vm.Disk
		want  string
	}{
		{name: "nothing more"},
		{name: "what the agent says itself", words: "-S -daemonize -pidfile /run/web.pid -incoming tcp:0:4444 -no-shutdown"},
		{name: "what stays as its guest ends", words: "-action shutdown=pause -action shutdown=pause,panic=pause -action reboot=shutdown,shutdown=poweroff", want: "-action panic=pause -action reboot=shutdown,shutdown=poweroff"},
		{
			name:  "monitors",
			words: "-monitor stdio -qmp unix:/run/web/qmp.sock,server,nowait -chardev socket,id=m,path=/run/m,server=on,wait=off -mon chardev=m,mode=control",
		},
		{
			name:  "sockets and files of its own",
			words: "-chardev socket,id=a,path=/run/web/a.sock,server,nowait -chardev file,id=b,path=/var/log/b.log -serial file:/var/log/web.log -chardev pty,id=c",
			want:  "-chardev socket,id=a,path={dir}/a.sock,server,nowait -chardev file,id=b,path={dir}/b.log -serial file:{dir}/web.log -chardev pty,id=c",
		},
		{
			name:  "what only this process has",
			words: "-chardev stdio,id=a,mux=on,signal=off -mon chardev=a,mode=readline -serial chardev:a -chardev pipe,id=b,path=/run/b -parallel pipe:/run/c -debugcon stdio",
			want:  "-chardev null,id=a,mux=on -serial chardev:a -chardev null,id=b -parallel null -debugcon null",
		},
		{
			name: "sound", words: `-audiodev pa,id=a,server=/run/user/1000/pulse/native -audio driver=alsa,model=hda,id=b -audiodev {"id":"c","driver":"none"}`,
			want: `-audiodev none,id=a -audio none,model=hda,id=b -audiodev {"id":"c","driver":"none"}`,
		},
		{
			name: "windows of others", words: "-display spice-app,gl=on -display dbus,addr=unix:path=/run/1 -sdl -full-screen",
			want: "-display none -display none",
		},
		{
			name:  "screens at sockets",
			words: "-vnc unix:/run/qemu-server/100.vnc,password=on -spice unix=on,addr=/run/web/spice.sock,disable-ticketing=on -vnc none -vnc vnc=unix:/run/web/vnc",
			want:  "-vnc unix:{dir}/100.vnc,password=on -spice unix=on,addr={dir}/spice.sock,disable-ticketing=on -vnc none -vnc vnc=unix:{dir}/vnc",
		},
		{
			name: "secrets of libvirt's run",
			words: `-object {"qom-type":"secret","id":"masterKey0","format":"raw","file":"/var/lib/libvirt/qemu/domain-1-web/master-key.aes"}` +
				` -object {"qom-type":"secret","id":"libvirt-1-format-encryption-secret0","data":"sFyA","keyid":"masterKey0","iv":"b0s=","format":"base64"}`,
		},
		{
			name:  "descriptors of libvirt's",
			words: `-add-fd set=1,fd=31 -chardev file,id=a,path=/dev/fdset/1,append=on -device {"driver":"vhost-vsock-pci","id":"vsock0","guest-cid":3,"vhostfd":"28"}`,
			want:  "-chardev null,id=a -device driver=vhost-vsock-pci,guest-cid=3,id=vsock0",
		},
		{
			name: "a distributor's version of a machine", words: "-machine accel=tcg,type=q35+pve1",
			want: "-machine accel=tcg,type=pc-q35-10.0+pve1",
		},
		{
			name: "a drive and a CD", words: "-drive file=web.qcow2,if=virtio,cache=none,format=qcow2 -cdrom /srv/a,,b.iso",
			disks: []vm.Disk{{ID: "virtio0", Path: "web.qcow2", Format: "qcow2"}, {ID: "ide2-cd0", Path: "/srv/a,,b.iso", Format: "raw"}},
			want:  "-drive file={disk0},if=virtio,cache=none,format=raw -drive file={disk1},format=raw,index=2,media=cdrom",
		},
		{
			name: "what is short for a drive", words: "-fdb f.img -pflash vars.fd -hdc web.raw",
			disks: []vm.Disk{{ID: "ide1-hd0", Path: "web.raw", Format: "raw"}, {ID: "floppy1", Path: "f.img", Format: "raw"}, {ID: "pflash0", Path: "vars.fd", Format: "raw"}},
			want:  "-drive file={disk1},format=raw,if=floppy,index=1 -drive file={disk2},format=raw,if=pflash -drive file={disk0},format=raw,index=2",
		},
		{
			name: "a drive of Proxmox", words: "-drive file=/dev/pve/vm-100-disk-0,if=none,id=drive-scsi0,discard=on,format=raw,cache=none,aio=io_uring",
			disks: []vm.Disk{{ID: "drive-scsi0", Path: "/dev/pve/vm-100-disk-0", Format: "raw"}},
			want:  "-drive file={disk0},if=none,id=drive-scsi0,discard=on,format=raw,cache=none,aio=io_uring",
		},
		{
			name: "options of a drive's format",
			words: "-drive file=web.qcow2,if=virtio,lazy-refcounts=on,l2-cache-size=1M,iops=100,bps_rd=5,throttling.bps-write=7,cache.direct=on,file.locking=off" +
				" -drive driver=qcow2,file.driver=file,file.filename=/srv/data.qcow2,backing.driver=raw,id=data,if=none,readonly",
			disks: []vm.Disk{{ID: "virtio0", Path: "web.qcow2", Format: "qcow2"}, {ID: "data", Path: "/srv/data.qcow2", Format: "qcow2"}},
			want: "-drive file={disk0},if=virtio,iops=100,bps_rd=5,throttling.bps-write=7,cache.direct=on,format=raw" +
				" -drive id=data,if=none,readonly,file={disk1},format=raw",
		},
		{
			name: "a drive of which QEMU tells JSON", words: "-drive file=vars.fd,format=raw,if=pflash,unit=1,size=540672",
			disks: []vm.Disk{{ID: "pflash1", Path: `json:{"driver": "raw", "size": "540672", "file": {"driver": "file", "filename": "vars.fd"}}`, Format: "raw"}},
			want:  "-drive file={disk0},format=raw,if=pflash,unit=1",
		},
		{
			name:  "drives of one file",
			words: "-drive id=b,file=/srv/a,if=none,readonly=on -drive id=a,file=/srv/a,if=none,readonly=on",
			disks: []vm.Disk{{ID: "a", Path: "/srv/a", Format: "raw"}, {ID: "b", Path: "/srv/a", Format: "raw"}},
			want:  "-drive id=b,file={disk1},if=none,readonly=on,format=raw -drive id=a,file={disk0},if=none,readonly=on,format=raw",
		},
		{
			name: "block nodes with a backing file",
			words: "-blockdev driver=file,node-name=basefile,filename=/srv/base -blockdev driver=qcow2,node-name=base,file=basefile" +
				" -blockdev driver=host_device,node-name=topfile,filename=/dev/vg/top -blockdev driver=qcow2,node-name=top,file=topfile,backing=base,lazy-refcounts=on",
			disks: []vm.Disk{{ID: "top", Path: "/dev/vg/top", Format: "qcow2"}},
			want:  "-blockdev driver=file,node-name=topfile,filename={disk0} -blockdev driver=raw,node-name=top,file=topfile",
		},
		{
			name: "block nodes in each other, as of Proxmox 9, and a part of a file",
			words: `-blockdev {"driver":"throttle","file":{"driver":"qcow2","file":{"aio":"io_uring","driver":"host_device","filename":"/dev/pve/web","node-name":"e1"},` +
				`"backing":{"driver":"file","filename":"/srv/base"},"discard":"unmap","node-name":"f1"},"node-name":"drive-scsi0","throttle-group":"t"}` +
				` -blockdev raw,node-name=vars,size=540672,file.driver=file,file.filename=/srv/vars.fd,file.locking=off`,
			disks: []vm.Disk{{ID: "drive-scsi0", Path: "json:{}", Format: "throttle"}, {ID: "vars", Path: "json:{}", Format: "raw"}},
			want: "-blockdev driver=throttle,file.discard=unmap,file.driver=raw,file.file.aio=io_uring,file.file.driver=file,file.file.filename={disk0},file.file.node-name=e1," +
				"file.node-name=f1,node-name=drive-scsi0,throttle-group=t -blockdev driver=raw,node-name=vars,file.driver=file,file.filename={disk1},file.locking=off",
		},
		{
			name: "firmware of libvirt's", words: "-blockdev driver=file,filename=/srv/vars.fd,node-name=libvirt-pflash1-storage,read-only=off",
			disks: []vm.Disk{{ID: "libvirt-pflash1-storage", Path: "/srv/vars.fd", Format: "file"}},
			want:  "-blockdev driver=file,filename={disk0},node-name=libvirt-pflash1-storage,read-only=off",
		},
		{
			name: "a block node over its file", words: "-blockdev driver=qcow2,node-name=root,file.driver=file,file.filename=/srv/web.qcow2,file.aio=native",
			disks: []vm.Disk{{ID: "root", Path: "/srv/web.qcow2", Format: "qcow2"}},
			want:  "-blockdev driver=raw,node-name=root,file.driver=file,file.filename={disk0},file.aio=native",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := running(strings.Fields("-machine q35 -m 256 -netdev tap,id=net0,fd=5 -device virtio-net-pci,netdev=net0 -display gtk " + tt.words)...)
			r.Facts.Disks = tt.disks
			found, err := Of(r)
			if err != nil {
				t.Fatal(err)
			}
			want := strings.Fields("qemu-system-x86_64 -S -incoming defer " + with + " " + tt.want + " -qmp unix:{qmp},server=on,wait=off")
			if got := found.Description.Start; !slices.Equal(got, want) {
				t.Errorf("got  %s\nwant %s", strings.Join(got, " "), strings.Join(want, " "))
			}
			if tap := found.Description.NICs[0].Tap; tap != "tap-web" {
				t.Errorf("tap %q", tap)
			}
			loads(t, found)
		})
	}
}

// What a person would have meant by none of it is added.
func TestWhatIsNotSaid(t *testing.T) {
	r := running("-netdev", "type=tap,id=net0,ifname=tap9,script=/etc/up,vhost=on", "-append", "", "-initrd", "", "-nographic")
	r.Facts.Name, r.Cards[0].Tap = "web of the shop", "tap9"
	found, err := Of(r)
	if err != nil {
		t.Fatal(err)
	}
	want := "qemu-system-x86_64 -S -incoming defer -netdev tap,id=net0,fd={fd0},vhost=on -append  -initrd  -display none -machine pc-q35-10.0 -m {memory} -qmp unix:{qmp},server=on,wait=off"
	if got := strings.Join(found.Description.Start, " "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if d := found.Description; d.Name != "guest" || d.NICs[0].Tap != "tap9" || d.Network != "tunnel" {
		t.Errorf("%+v", d)
	}
	loads(t, found)
}

// What QEMU got after its start is left to a person, and what bars a move.
func TestPluggedInLater(t *testing.T) {
	r := running(strings.Fields("-netdev tap,id=net0,fd=5")...)
	r.Cards = append(r.Cards, qemu.Card{MAC: "52:54:00:00:01:0b", Netdev: "net1"})
	r.Facts.Blockers = []string{"VFIO device doesn't support migration"}
	r.Facts.Closed = []string{"disk hd0: Could not open 'root.img': No such file or directory"}
	r.Facts.Disks = []vm.Disk{{ID: "libvirt-4-storage", Path: "/srv/cd.iso", Format: "file"}}
	found, err := Of(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"does not let it move as it is: VFIO", "must open disk hd0: Could not open", "have a block node libvirt-4-storage read {disk0}", "it was plugged in later; add its -netdev, with fd={fd0},"} {
		if !slices.ContainsFunc(found.Look, func(line string) bool { return strings.Contains(line, want) }) {
			t.Errorf("nobody is told of %q: %q", want, found.Look)
		}
	}
}

// Files are named whole, and a person is told of those that are no disks.
func TestFiles(t *testing.T) {
	r := running(strings.Fields("-netdev tap,id=net0,fd=5 -kernel vmlinuz,1 -initrd /boot/initrd -append init=/bin/sh -fw_cfg name=opt/a,file=a,,b -fw_cfg name=opt/s,string=s -virtfs local,path=share -acpitable data=slic:/srv/b -chardev socket,id=tpm,path=tpm.sock")...)
	r.Words[0] = "../qemu"
	found, err := Of(r)
	if err != nil {
		t.Fatal(err)
	}
	got, want := strings.Join(found.Description.Start, " "), "/home/qemu -S -incoming defer -netdev tap,id=net0,fd={fd0} -kernel /home/op/vmlinuz,1 -initrd /boot/initrd -append init=/bin/sh "+
		"-fw_cfg name=opt/a,file=/home/op/a,,b -fw_cfg name=opt/s,string=s -virtfs local,path=/home/op/share -acpitable data=/home/op/slic:/srv/b -chardev socket,id=tpm,path=/home/op/tpm.sock "
	if !strings.HasPrefix(got, want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if want := "must have the same: /home/op/vmlinuz,1, /boot/initrd, /home/op/a,b, /home/op/share, /home/op/slic:/srv/b"; found.Look[len(found.Look)-1] != "each destination "+want {
		t.Errorf("%q", found.Look)
	}
	if told := strings.Count(strings.Join(found.Look, "\n"), "/home/op/tpm.sock"); told != 1 {
		t.Errorf("of the socket %d lines tell: %q", told, found.Look)
	}
}

// A guest of libvirt has the port of its agent, which libvirt holds, before the one that was added for Godwit.
func TestBestChannel(t *testing.T) {
	r := running(strings.Fields("-netdev tap,id=net0,fd=5 -chardev socket,id=a,fd=7,server=on -device virtserialport,chardev=a,name=org.qemu.guest_agent.0" +
		" -chardev socket,id=b,path=guest.sock,server=on -device virtserialport,chardev=b,name=org.godwit.guest.0")...)
	r.Chardevs = map[string]string{"a": "unix:/run/libvirt/qemu/channel/1-web/org.qemu.guest_agent.0,server=on", "b": "disconnected:unix:guest.sock,server=on"}
	found, err := Of(r)
	if err != nil {
		t.Fatal(err)
	}
	if d := found.Description; d.Channel != "/home/op/guest.sock" || d.Agent != "" || !slices.Contains(d.Start, "socket,id=b,path={channel},server=on,wait=off") {
		t.Errorf("%+v", d)
	}
	if !slices.ContainsFunc(found.Look, func(line string) bool { return strings.Contains(line, "answers on the channel was not asked") }) {
		t.Errorf("nobody is told that it may be silent: %q", found.Look)
	}
}

func TestEncryptedDisk(t *testing.T) {
	r := running(strings.Fields("-netdev tap,id=net0,fd=5 -drive file=web.luks,format=luks,key-secret=s,if=virtio")...)
	r.Facts.Disks = []vm.Disk{{ID: "virtio0", Path: `json:{"driver": "luks", "key-secret": "s", "file": {"driver": "file", "filename": "web.luks"}}`, Format: "luks"}}
	found, err := Of(r)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(found.Description.Start, " "); !strings.Contains(got, " -drive file={disk0},format=raw,if=virtio ") {
		t.Error(got)
	}
	if !slices.ContainsFunc(found.Look, func(line string) bool { return strings.Contains(line, "encrypted here") }) {
		t.Errorf("nobody is told: %q", found.Look)
	}
}

// A folder of huge pages is made by whoever starts a guest, as libvirt does; other devices are the same everywhere.
func TestHugePages(t *testing.T) {
	found, err := Of(running(strings.Fields("-netdev tap,id=net0,fd=5 -mem-path /dev/hugepages/libvirt/qemu/1-web -object rng-random,id=r,filename=/dev/urandom")...))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(found.Look, "each destination must have the same: /dev/hugepages/libvirt/qemu/1-web") {
		t.Errorf("%q", found.Look)
	}
}

// Passwords are in what the guest is started by, and nowhere else, and a person is told.
func TestPasswords(t *testing.T) {
	found, err := Of(running(strings.Fields("-netdev tap,id=net0,fd=5 -object secret,id=s,data=hunter2 -spice port=5930,password=hunter3 -vnc :1,password=on")...))
	if err != nil {
		t.Fatal(err)
	}
	looks := strings.Join(found.Look, "\n")
	if !strings.Contains(looks, "passwords in plain, in -object, -spice:") || strings.Contains(looks, "hunter") {
		t.Error(looks)
	}
	if found, err = Of(running(strings.Fields("-netdev tap,id=net0,fd=5 -object secret,id=s,file=/etc/s -object secret,id=d,keyid=s,data=c2Fm -vnc :1,password=on")...)); err != nil {
		t.Fatal(err)
	}
	if looks := strings.Join(found.Look, "\n"); strings.Contains(looks, "in plain") {
		t.Error(looks)
	}
}

// TestLibvirt takes a command line as libvirt 11.3 writes it (virsh domxml-to-native qemu-argv), with
// a second monitor.
func TestLibvirt(t *testing.T) {
	text, err := os.ReadFile("testdata/libvirt-11.3")
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Split(strings.TrimSpace(string(text)), "\n")
	r := running()
	r.Words, r.Cards[0].Netdev = words, "hostnet0"
	r.Chardevs = map[string]string{"charchannel0": "unix:/run/libvirt/qemu/channel/1-web/org.qemu.guest_agent.0,server=on"}
	r.Facts.Disks = []vm.Disk{{ID: "libvirt-2-format", Path: "/srv/web.qcow2", Format: "qcow2"}}
	found, err := Of(r)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(found.Description.Start, " ")
	for _, want := range []string{
		"/usr/bin/qemu-system-x86_64 -S -incoming defer -name guest=web,debug-threads=on -machine pc-q35-10.0,usb=off,dump-guest-core=off,memory-backend=pc.ram,acpi=on -accel tcg",
		`-m size={memory} -object {"qom-type":"memory-backend-ram","id":"pc.ram","size":268435456} `,
		"-blockdev auto-read-only=on,discard=unmap,driver=file,filename={disk0},node-name=libvirt-2-storage ",
		"-blockdev discard=unmap,driver=raw,file=libvirt-2-storage,node-name=libvirt-2-format,read-only=off ",
		`-device {"driver":"ide-cd","bus":"ide.0","id":"sata0-0-0"}`,
		"-netdev tap,id=hostnet0,fd={fd0} ",
		"-chardev socket,id=charchannel0,path={channel},server=on,wait=off",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s\nlacks %s", got, want)
		}
	}
	for _, of := range []string{"masterKey", "charmonitor", "no-shutdown", "/libvirt", "{disk1}", "/run/web"} {
		if strings.Contains(got, of) {
			t.Errorf("%s\nhas %s, which is of this process", got, of)
		}
	}
	d := found.Description
	if d.Channel != "/run/libvirt/qemu/channel/1-web/org.qemu.guest_agent.0" || d.Agent != config.AgentQGA || d.NICs[0].Tap != "tap-web" {
		t.Errorf("%+v", d)
	}
	for _, want := range []string{"libvirt has the channel", "-vnc 127.0.0.1:0", "one NIC"} {
		if !slices.ContainsFunc(found.Look, func(line string) bool { return strings.Contains(line, want) }) {
			t.Errorf("nobody is told of %q: %q", want, found.Look)
		}
	}
	loads(t, found)
}

func TestCannotBeDescribed(t *testing.T) {
	for words, want := range map[string]string{
		"-nic tap,ifname=tap0":        "with -netdev and -device",
		"-netdev user,id=net0":        "only one on a tap",
		"-snapshot":                   "-snapshot",
		"-drive file=a,snapshot=on":   "-snapshot",
		"-readconfig /etc/web.cfg":    "write the description yourself",
		`-device {"driver":"virtio-x`: "not JSON",
		"-drive file=/srv/caf\xe9":    "no UTF-8",
		"-smbios type=1,serial={fd0}": "which agents replace",
	} {
		if _, err := Of(running(strings.Fields(words)...)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, not %q", words, err, want)
		}
	}
	without := running("-nodefaults")
	without.Cards = nil
	if _, err := Of(without); err == nil || !strings.Contains(err.Error(), "no NIC") {
		t.Errorf("without a NIC: %v", err)
	}
	queues := running()
	queues.Cards[0].Queues = 4
	if _, err := Of(queues); err == nil || !strings.Contains(err.Error(), "queues=1") {
		t.Errorf("with queues: %v", err)
	}
	id := running(strings.Fields("-drive file=a,if=none,id=root.0 -netdev tap,id=net0,fd=5")...)
	id.Facts.Disks = []vm.Disk{{ID: "root.0", Path: "a", Format: "raw"}}
	if _, err := Of(id); err == nil || !strings.Contains(err.Error(), `disk id "root.0"`) {
		t.Errorf("with a disk that cannot be described: %v", err)
	}
	if _, err := Of(Running{}); err == nil {
		t.Error("described without a command line")
	}
}

// TestDaemon: a person is told, once, of a file that was named from where a daemon was started, which it has left.
func TestDaemon(t *testing.T) {
	for words, told := range map[string]int{
		"-daemonize -kernel vmlinuz": 1, "-daemonize -kernel /srv/vmlinuz": 0, "-kernel vmlinuz": 0, "-daemonize -chardev socket,id=a,path=vmlinuz": 1,
	} {
		found, err := Of(running(strings.Fields("-netdev tap,id=net0,fd=5 " + words)...))
		if err != nil {
			t.Fatal(err)
		}
		if lines := strings.Count(strings.Join(found.Look, "\n"), "vmlinuz: where it lies is not known"); lines != told {
			t.Errorf("%s: %d lines of %q, want %d", words, lines, found.Look, told)
		}
	}
}
