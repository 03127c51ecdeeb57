package mptcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Room gives subflows that join at some of this machine's addresses a receive buffer of that size from their beginning.
// Linux lets them begin with the first of a listener (net.ipv4.tcp_rmem's second number), and has them grow with their
// connection's, which grows only when more is read of it in a round trip than ever before (mptcp_rcv_space_adjust, Linux
// 6.1): of a connection that was fast until its other subflows went, the new one takes 64 KiB a round trip for good. A
// program of the machine's first control group sets the buffer as each is established (BPF_PROG_TYPE_SOCK_OPS), by a
// third packet that has MP_JOIN (RFC 8684 §3.2), and leaves alone what has more. The kernel does not let such a buffer
// grow by itself any more; up to Linux 6.17 their connection's lets it. The zero value gives none.
type Room struct {
	mu    sync.Mutex
	addrs []netip.Addr
	bytes int64
	prog  *ebpf.Program
	link  link.Link
	ends  *time.Timer
}

// Give begins, for d at most, in place of what was given before: bytes for each that joins at one of addrs. It needs
// root, and Linux 6.1.
func (r *Room) Give(addrs []netip.Addr, bytes int64, d time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.link != nil && r.bytes == bytes && slices.Equal(r.addrs, addrs) && r.ends.Reset(d) {
		return nil
	}
	r.end()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "godwit_room", Type: ebpf.SockOps, AttachType: ebpf.AttachCGroupSockOps, Instructions: gives(addrs, bytes), License: "GPL",
	})
	if err != nil {
		return fmt.Errorf("load program: %w", err)
	}
	group, err := firstGroup()
	if err != nil {
		prog.Close()
		return err
	}
	defer group.Close()
	attached, err := link.AttachRawLink(link.RawLinkOptions{Target: int(group.Fd()), Program: prog, Attach: ebpf.AttachCGroupSockOps}) //nolint:gosec // a descriptor
	if err != nil {
		prog.Close()
		return fmt.Errorf("attach program: %w", err)
	}
	r.prog, r.link, r.addrs, r.bytes = prog, attached, slices.Clone(addrs), bytes
	r.ends = time.AfterFunc(d, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.link == attached { // not what was given meanwhile
			r.end()
		}
	})
	return nil
}

// End gives no more; who has it, keeps it.
func (r *Room) End() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end()
}

func (r *Room) end() {
	if r.link == nil {
		return
	}
	r.ends.Stop()
	r.link.Close()
	r.prog.Close()
	r.link = nil
}

// firstGroup opens the first group of the unified hierarchy where it is mounted. Mounting it once more would change the
// options of all mounts (cgroup_get_tree), such as systemd's nsdelegate, so that is for a machine that has none.
func firstGroup() (*os.File, error) {
	for _, dir := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		var fs unix.Statfs_t
		if unix.Statfs(dir, &fs) == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC {
			return os.Open(dir) //nolint:gosec // one of two
		}
	}
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(mounts), " - cgroup2 ") {
		return nil, errors.New("find the first control group: cgroup2 is not mounted at /sys/fs/cgroup")
	}
	hierarchy, err := unix.Fsopen("cgroup2", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("open cgroup2: %w", err)
	}
	defer unix.Close(hierarchy)
	if err := unix.FsconfigCreate(hierarchy); err != nil {
		return nil, fmt.Errorf("open cgroup2: %w", err)
	}
	group, err := unix.Fsmount(hierarchy, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open cgroup2: %w", err)
	}
	return os.NewFile(uintptr(group), "cgroup2"), nil
}

// Of struct bpf_sock_ops (linux/bpf.h), and its op as a connection that was accepted is established.
const (
	sockOp      = 0
	sockLocal4  = 28
	sockLocal6  = 48
	established = 5 // BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB
)

// The option of MPTCP, its kind, length and subtype (RFC 8684 §3).
const (
	optionMPTCP = 30
	subtypeJoin = 1
)

// gives is the program.
func gives(addrs []netip.Addr, bytes int64) asm.Instructions {
	const ctx, value, option, size = asm.R6, -4, -8, 4
	all := asm.Instructions{
		asm.Mov.Reg(ctx, asm.R1),
		asm.LoadMem(asm.R2, ctx, sockOp, asm.Word),
		asm.JNE.Imm(asm.R2, established, "exit"),
	}
	for i, addr := range addrs {
		words, at, next := addr.AsSlice(), int16(sockLocal4), fmt.Sprintf("next%d", i)
		if addr.Is6() {
			at = sockLocal6
		}
		for w := 0; w < len(words); w += size {
			all = append(all,
				asm.LoadMem(asm.R2, ctx, at+int16(w), asm.Word),                           //nolint:gosec // below 64
				asm.JNE.Imm32(asm.R2, int32(binary.NativeEndian.Uint32(words[w:])), next)) //nolint:gosec // the same bits
		}
		all = append(all, asm.Ja.Label("join"), asm.Mov.Imm(asm.R0, 1).WithSymbol(next))
	}
	call := func(f asm.BuiltinFunc) asm.Instructions { // with SO_RCVBUF's value
		return asm.Instructions{
			asm.Mov.Reg(asm.R1, ctx),
			asm.Mov.Imm(asm.R2, unix.SOL_SOCKET),
			asm.Mov.Imm(asm.R3, unix.SO_RCVBUF),
			asm.Mov.Reg(asm.R4, asm.RFP),
			asm.Add.Imm(asm.R4, value),
			asm.Mov.Imm(asm.R5, size),
			f.Call(),
		}
	}
	all = append(all,
		asm.Ja.Label("exit"),
		asm.StoreImm(asm.RFP, option, optionMPTCP, asm.Byte).WithSymbol("join"),
		asm.StoreImm(asm.RFP, option+1, 0, asm.Byte),
		asm.StoreImm(asm.RFP, option+2, 0, asm.Byte),
		asm.StoreImm(asm.RFP, option+3, 0, asm.Byte),
		asm.Mov.Reg(asm.R1, ctx),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, option),
		asm.Mov.Imm(asm.R3, size), // its beginning is copied, though there is more
		asm.Mov.Imm(asm.R4, 0),
		asm.FnLoadHdrOpt.Call(),
		asm.LoadMem(asm.R2, asm.RFP, option+2, asm.Byte),
		asm.And.Imm(asm.R2, 0xf0),
		asm.JNE.Imm(asm.R2, subtypeJoin<<4, "exit"),
		asm.StoreImm(asm.RFP, value, 0, asm.Word),
	)
	all = append(all, call(asm.FnGetsockopt)...)
	all = append(all,
		asm.JNE.Imm(asm.R0, 0, "exit"), // before Linux 6.1
		asm.LoadMem(asm.R2, asm.RFP, value, asm.Word),
		asm.JGE.Imm(asm.R2, int32(bytes), "exit"),       //nolint:gosec // see RoomForEach
		asm.StoreImm(asm.RFP, value, bytes/2, asm.Word), // the kernel doubles it
	)
	all = append(all, call(asm.FnSetsockopt)...)
	return append(all, asm.Mov.Imm(asm.R0, 1).WithSymbol("exit"), asm.Return())
}

// RoomForEach is how large a receive buffer each of this namespace's TCP sockets may begin with: half of what one may
// grow to (net.ipv4.tcp_rmem), and so that all of them, and their MPTCP connections' as well, fill no more than half of
// what the kernel gives all of TCP: what comes beyond that is dropped, and MPTCP may stand still for good. Twice
// net.core.rmem_max is the kernel's limit. 0 where that is not more than they begin with anyway, where it is not known, and
// since Linux 6.18, where a buffer that was given would not grow any more.
func RoomForEach() (bytes int64, err error) {
	if !growsWithItsConnection() {
		return 0, nil
	}
	limits, err := numbers("/proc/sys/net/ipv4/tcp_mem", 3)
	if errors.Is(err, os.ErrNotExist) { // in a container
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	most, err := numbers("/proc/sys/net/core/rmem_max", 1)
	if err != nil {
		return 0, err
	}
	buffers, err := numbers("/proc/sys/net/ipv4/tcp_rmem", 3)
	if err != nil {
		return 0, err
	}
	sockets, err := receivers()
	if err != nil {
		return 0, err
	}
	return roomOf(limits[2]*int64(os.Getpagesize()), most[0], buffers, sockets), nil
}

// roomOf is RoomForEach by the kernel's numbers: bytes for all of TCP, rmem_max, tcp_rmem, and how many sockets there are.
func roomOf(limit, most int64, buffers []int64, sockets int64) int64 {
	bytes := min(buffers[2]/2, 2*most, limit/4/max(sockets, 1))
	if bytes <= buffers[1] {
		return 0
	}
	return bytes
}

// growsWithItsConnection says whether this kernel has a subflow's buffer grow with its connection's also where it was
// set (tcp_rcvbuf_grow heeds that since 6.18).
func growsWithItsConnection() bool {
	var name unix.Utsname
	var major, minor int
	if unix.Uname(&name) != nil {
		return false
	}
	n, _ := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor)
	return n == 2 && (major < 6 || major == 6 && minor < 18)
}
