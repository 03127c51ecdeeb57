package mptcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Room gives subflows that others open to some of this machine's addresses a receive buffer of that size from their
// beginning. Linux lets them begin with the first of a listener (net.ipv4.tcp_rmem's second number), and has them grow
// with their connection's, which grows only when more is read of it in a round trip than ever before
// (mptcp_rcv_space_adjust, Linux 6.1): of a connection that was fast until its other subflows went, the new one takes
// 64 KiB a round trip for good. A program of the machine's first control group sets the buffer as each is established
// (BPF_PROG_TYPE_SOCK_OPS); what else is opened to such an address meanwhile has it, too. The zero value gives none.
type Room struct {
	mu   sync.Mutex
	prog *ebpf.Program
	link link.Link
	ends *time.Timer
}

// Give begins, for d at most, in place of what was given before: bytes for each that comes to one of addrs. It needs
// root, and Linux 5.7. The buffer may be no larger than twice net.core.rmem_max.
func (r *Room) Give(addrs []netip.Addr, bytes int64, d time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "godwit_room", Type: ebpf.SockOps, AttachType: ebpf.AttachCGroupSockOps, Instructions: gives(addrs, bytes), License: "GPL",
	})
	if err != nil {
		return fmt.Errorf("load program: %w", err)
	}
	group, err := firstGroup()
	if err == nil {
		defer group.Close()
		r.link, err = link.AttachRawLink(link.RawLinkOptions{Target: int(group.Fd()), Program: prog, Attach: ebpf.AttachCGroupSockOps}) //nolint:gosec // a descriptor
	}
	if err != nil {
		prog.Close()
		return fmt.Errorf("attach program: %w", err)
	}
	r.prog, r.ends = prog, time.AfterFunc(d, r.End)
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

// firstGroup opens the first group of the unified hierarchy, wherever that may be mounted.
func firstGroup() (*os.File, error) {
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

// gives is the program.
func gives(addrs []netip.Addr, bytes int64) asm.Instructions {
	const ctx, value, size = asm.R6, -4, 4
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
		all = append(all, asm.Ja.Label("give"), asm.Mov.Imm(asm.R0, 1).WithSymbol(next))
	}
	return append(all,
		asm.Ja.Label("exit"),
		asm.Mov.Imm(asm.R2, int32(bytes/2)).WithSymbol("give"), //nolint:gosec // tcp_rmem's are such; the kernel doubles it
		asm.StoreMem(asm.RFP, value, asm.R2, asm.Word),
		asm.Mov.Reg(asm.R1, ctx),
		asm.Mov.Imm(asm.R2, unix.SOL_SOCKET),
		asm.Mov.Imm(asm.R3, unix.SO_RCVBUF),
		asm.Mov.Reg(asm.R4, asm.RFP),
		asm.Add.Imm(asm.R4, value),
		asm.Mov.Imm(asm.R5, size),
		asm.FnSetsockopt.Call(),
		asm.Mov.Imm(asm.R0, 1).WithSymbol("exit"),
		asm.Return(),
	)
}

// RoomForEach is how large a receive buffer each of this namespace's TCP sockets may begin with: half of what one may
// grow to (net.ipv4.tcp_rmem), and so that all of them, and their MPTCP connections' as well, fill no more than half of
// what the kernel gives all of TCP: what comes beyond that is dropped, and MPTCP may stand still for good. 0 where that
// is not more than they begin with anyway, or not known.
func RoomForEach() (bytes int64, err error) {
	limits, err := numbers("/proc/sys/net/ipv4/tcp_mem", 3)
	if errors.Is(err, os.ErrNotExist) { // in a container
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	buffers, err := numbers("/proc/sys/net/ipv4/tcp_rmem", 3)
	if err != nil {
		return 0, err
	}
	sockets, err := ofTCP("/proc/net/sockstat", "inuse")
	if err != nil {
		return 0, err
	}
	bytes = min(buffers[2]/2, limits[2]*int64(os.Getpagesize())/4/max(sockets, 1))
	if bytes <= buffers[1] {
		return 0, nil
	}
	return bytes, nil
}
