package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"godwit/netstate/mptcp"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// boot makes a bare kernel usable: file systems, drivers, network settings.
func boot() error {
	if err := mountAll(); err != nil {
		return err
	}
	os.Setenv("PATH", "/bin:/sbin:/usr/bin:/usr/sbin")
	os.Setenv("HOME", "/")
	if err := loadModules(); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte("guest")); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	tune()
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	if err := mptcp.SetLimits(8, 8); err != nil {
		say("%v", err) // a kernel without MPTCP still serves plain TCP
	}
	return nil
}

func mountAll() error {
	for _, m := range []struct{ kind, at, options string }{
		{"proc", "/proc", ""},
		{"sysfs", "/sys", ""},
		{"devtmpfs", "/dev", ""},
		{"tmpfs", "/tmp", "size=25%"},
		{"tmpfs", "/run", "size=10%,mode=755"},
	} {
		if err := os.MkdirAll(m.at, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.at, m.kind, 0, m.options); err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	return nil
}

// loadModules loads the kernel modules that the image's list names, in its order, which
// the image's builder has sorted by dependency.
func loadModules() error {
	const list = "/lib/modules/order"
	content, err := os.ReadFile(list)
	if err != nil {
		return fmt.Errorf("read module list: %w", err)
	}
	lines := bufio.NewScanner(bytes.NewReader(content))
	for lines.Scan() {
		path := filepath.Join(filepath.Dir(list), lines.Text())
		if err := loadModule(path); err != nil {
			return fmt.Errorf("load %s: %w", lines.Text(), err)
		}
	}
	return lines.Err()
}

func loadModule(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	err = unix.FinitModule(int(file.Fd()), "", 0)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

// tune sets what the facts about MPTCP and migration ask for. Settings that a
// kernel does not have yet are no loss.
func tune() {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		say("ask for the memory there is: %v", err)
	}
	for _, line := range strings.Split(strings.TrimSpace(settings+buffers(info.Totalram*uint64(info.Unit))), "\n") {
		key, value, _ := strings.Cut(line, "=")
		path := "/proc/sys/" + strings.ReplaceAll(key, ".", "/")
		if err := os.WriteFile(path, []byte(value), 0o644); err != nil && !errors.Is(err, os.ErrNotExist) {
			say("set %s: %v", key, err)
		}
	}
}

// buffers are those of TCP and UDP, for a machine of so many bytes. The kernel's own share of the memory for
// all of TCP, a thirteenth, is one connection's worth in a small guest. When what waits for a
// reader that gets no processor has used it up, Linux drops what comes on MPTCP connections
// and keeps what came out of order, so that they stand still for good (RcvPruned in MPTcpExt).
// So a connection may use a 64th, up to 16 MiB, and all of them a fifth. Datagrams, of which some 2000 fill its share
// for all of UDP, a sixteenth, are dropped then, however much their sockets may keep (MemErrors in Udp): the first number
// counts, and an eighth is what two of ours ask for (serve).
func buffers(memory uint64) string {
	one := min(max(memory/64, 1<<20), 16<<20)
	page := uint64(os.Getpagesize())
	return fmt.Sprintf("\nnet.ipv4.tcp_rmem=4096 131072 %d\nnet.ipv4.tcp_wmem=4096 65536 %d\nnet.ipv4.tcp_mem=%d %d %d\nnet.ipv4.udp_mem=%[6]d %[6]d %[6]d",
		one, one, memory/10/page, memory/8/page, memory/5/page, memory/8/page)
}

const settings = `
net.mptcp.enabled=1
net.mptcp.add_addr_timeout=1
net.mptcp.blackhole_timeout=0
net.mptcp.stale_loss_cnt=1
net.ipv4.conf.all.rp_filter=0
net.ipv4.conf.default.rp_filter=0
net.ipv4.conf.all.arp_ignore=1
net.ipv4.conf.all.arp_announce=2
net.ipv4.neigh.default.locktime=0
net.ipv6.conf.all.accept_dad=0
net.ipv6.conf.default.accept_dad=0
net.ipv6.conf.all.accept_ra=0
net.ipv6.conf.default.accept_ra=0
net.core.rmem_max=16777216
net.core.wmem_max=16777216
net.core.netdev_max_backlog=30000
net.core.somaxconn=16384
net.ipv4.tcp_max_syn_backlog=16384
kernel.panic_on_oops=1
kernel.printk=4 4 1 7`
