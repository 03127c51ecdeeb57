package tunnel

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// forgetRoutes lets what a VXLAN sends forget by which route it came to the device. The kernel tells that route how much
// of the path the headers leave (skb_tunnel_check_pmtu); IPv6 then answers whatever is larger with "packet too big"
// instead of handing it on, though it would go in fragments outside, and no locked MTU prevents that. A program at the
// device's exit gives each packet the route of a tunnel's metadata, which nobody reads and no size can be told to. It
// ends with the device.
func forgetRoutes(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "godwit_forget", Type: ebpf.SchedCLS, Instructions: forgets(), License: "GPL"})
	if err != nil {
		return fmt.Errorf("load program: %w", err)
	}
	defer prog.Close()
	index := link.Attrs().Index
	hook := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}
	if err := netlink.QdiscAdd(hook); err != nil {
		return lacking(err, "sch_ingress")
	}
	return lacking(netlink.FilterAdd(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: index, Parent: netlink.HANDLE_MIN_EGRESS, Handle: 1, Priority: 1, Protocol: unix.ETH_P_ALL},
		Fd:          prog.FD(), Name: "godwit_forget", DirectAction: true,
	}), "cls_bpf")
}

// lacking says of a refused request which of the kernel's modules would take it.
func lacking(err error, module string) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) {
		return &Unsupported{VXLAN, module}
	}
	return err
}

// forgets is the program: bpf_skb_set_tunnel_key puts its own route in the place of the packet's.
func forgets() asm.Instructions {
	const size, next = 8, -1 // of struct bpf_tunnel_key up to its address, all 0; TC_ACT_UNSPEC
	return asm.Instructions{
		asm.Mov.Imm(asm.R2, 0),
		asm.StoreMem(asm.RFP, -size, asm.R2, asm.DWord),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -size),
		asm.Mov.Imm(asm.R3, size),
		asm.Mov.Imm(asm.R4, 0),
		asm.FnSkbSetTunnelKey.Call(),
		asm.Mov.Imm(asm.R0, next),
		asm.Return(),
	}
}
