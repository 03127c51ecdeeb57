package meter

import (
	"encoding/binary"

	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// Fields of struct __sk_buff (linux/bpf.h) that a socket filter may read.
const (
	skbLen      = 0
	skbPktType  = 4
	skbProtocol = 16
	skbGSOSize  = 176 // since Linux 5.7
)

// The stack, downwards from the frame pointer.
const (
	onKey   = -keySize
	onValue = onKey - valueSize
	scratch = onValue - 8
)

// Registers that calls keep.
const (
	ctx     = asm.R6 // the packet
	length  = asm.R7 // IP bytes of the packet, later of all its segments
	gso     = asm.R8 // payload per segment, 0: no super-packet; later the number of segments
	headers = asm.R9 // bytes of IP and transport header, which each segment repeats
)

// program counts one packet into the map. It always returns 0: nothing is kept.
func program(mapFD int) asm.Instructions {
	parts := []asm.Instructions{start(), ipv4(), ipv6(), transport(), segments(), record(mapFD), {
		asm.Mov.Imm(asm.R0, 0).WithSymbol("exit"),
		asm.Return(),
	}}
	var all asm.Instructions
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

func start() asm.Instructions {
	ins := asm.Instructions{asm.Mov.Reg(ctx, asm.R1), asm.Mov.Imm(asm.R2, 0)}
	for off := scratch; off < 0; off += 8 {
		ins = append(ins, asm.StoreMem(asm.RFP, int16(off), asm.R2, asm.DWord))
	}
	return append(ins,
		asm.LoadMem(length, ctx, skbLen, asm.Word),
		asm.LoadMem(gso, ctx, skbGSOSize, asm.Word),
		asm.LoadMem(asm.R1, ctx, skbPktType, asm.Word),
		asm.JNE.Imm(asm.R1, unix.PACKET_OUTGOING, "version"),
		asm.StoreImm(asm.RFP, onKey, 1, asm.Byte),
		asm.LoadMem(asm.R1, ctx, skbProtocol, asm.Word).WithSymbol("version"),
		asm.JEq.Imm(asm.R1, network(unix.ETH_P_IP), "ipv4"),
		asm.JEq.Imm(asm.R1, network(unix.ETH_P_IPV6), "ipv6"),
		asm.Mov.Imm(gso, 0),
		asm.Ja.Label("segments"),
	)
}

// network returns v as the kernel compares it: in network order.
func network(v uint16) int32 {
	return int32(binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, v)))
}

// load copies n bytes of the packet, from offset, to the stack; a packet too
// short for it is not counted.
func load(offset int32, to, n int32) asm.Instructions {
	return append(asm.Instructions{asm.Mov.Imm(asm.R2, offset)}, copyTo(to, n)...)
}

// loadAt is load from headers+offset.
func loadAt(offset int32, to, n int32) asm.Instructions {
	return append(asm.Instructions{asm.Mov.Reg(asm.R2, headers), asm.Add.Imm(asm.R2, offset)}, copyTo(to, n)...)
}

func copyTo(to, n int32) asm.Instructions {
	return asm.Instructions{
		asm.Mov.Reg(asm.R1, ctx),
		asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, to),
		asm.Mov.Imm(asm.R4, n),
		asm.FnSkbLoadBytes.Call(),
		asm.JNE.Imm(asm.R0, 0, "exit"),
	}
}

// word reads two bytes of the packet into R1, in host order.
func word(offset int32) asm.Instructions {
	return append(load(offset, scratch, 2),
		asm.LoadMem(asm.R1, asm.RFP, scratch, asm.Half),
		asm.HostTo(asm.BE, asm.R1, asm.Half))
}

func ipv4() asm.Instructions {
	ins := asm.Instructions{asm.StoreImm(asm.RFP, onKey+1, 4, asm.Byte).WithSymbol("ipv4")}
	ins = append(ins, load(9, onKey+2, 1)...)
	ins = append(ins, load(12, onKey+8, 4)...)
	ins = append(ins, load(16, onKey+24, 4)...)
	ins = append(ins, load(0, scratch, 1)...)
	ins = append(ins,
		asm.LoadMem(headers, asm.RFP, scratch, asm.Byte),
		asm.And.Imm(headers, 15),
		asm.LSh.Imm(headers, 2),
	)
	ins = append(ins, total(2, 0)...)
	ins = append(ins, word(6)...)
	return append(ins,
		asm.And.Imm(asm.R1, 0x3fff), // more fragments, or an offset
		asm.JEq.Imm(asm.R1, 0, "transport"),
		asm.Mov.Imm(gso, 0),
		asm.Ja.Label("segments"),
	)
}

func ipv6() asm.Instructions {
	ins := asm.Instructions{asm.StoreImm(asm.RFP, onKey+1, 6, asm.Byte).WithSymbol("ipv6")}
	ins = append(ins, load(6, onKey+2, 1)...)
	ins = append(ins, load(8, onKey+8, 32)...)
	ins = append(ins, asm.Mov.Imm(headers, 40))
	return append(ins, total(4, 40)...)
}

// total takes the packet's length from its header instead of the buffer, which
// may be padded; not of a super-packet, where the header may say anything.
func total(offset, plus int32) asm.Instructions {
	skip := "total4"
	if plus > 0 {
		skip = "transport"
	}
	ins := asm.Instructions{asm.JNE.Imm(gso, 0, skip)}
	ins = append(ins, word(offset)...)
	ins = append(ins,
		asm.JEq.Imm(asm.R1, 0, skip), // longer than 64 KiB
		asm.Mov.Reg(length, asm.R1),
		asm.Add.Imm(length, plus),
	)
	if plus > 0 {
		return ins
	}
	return append(ins, asm.Mov.Imm(asm.R0, 0).WithSymbol(skip))
}

func transport() asm.Instructions {
	ins := asm.Instructions{
		asm.LoadMem(asm.R1, asm.RFP, onKey+2, asm.Byte).WithSymbol("transport"),
		asm.JEq.Imm(asm.R1, unix.IPPROTO_TCP, "tcp"),
		asm.JEq.Imm(asm.R1, unix.IPPROTO_UDP, "udp"),
		asm.Mov.Imm(gso, 0),
		asm.Ja.Label("segments"),
	}
	tcp := loadAt(12, scratch, 1) // data offset, in words, in the upper half
	tcp[0] = tcp[0].WithSymbol("tcp")
	ins = append(ins, tcp...)
	ins = append(ins,
		asm.LoadMem(asm.R1, asm.RFP, scratch, asm.Byte),
		asm.RSh.Imm(asm.R1, 4),
		asm.LSh.Imm(asm.R1, 2),
		asm.Add.Reg(headers, asm.R1),
		asm.Ja.Label("segments"),
	)
	udp := loadAt(2, onKey+4, 2)
	udp[0] = udp[0].WithSymbol("udp")
	return append(append(ins, udp...), asm.Add.Imm(headers, 8))
}

// segments leaves the number of packets in gso and their IP bytes in length:
// n = ceil(payload / gso), bytes = payload + n × headers.
func segments() asm.Instructions {
	return asm.Instructions{
		asm.Mov.Imm(asm.R1, 1).WithSymbol("segments"),
		asm.JEq.Imm(gso, 0, "counted"),
		asm.JLE.Reg(length, headers, "counted"),
		asm.Mov.Reg(asm.R1, length),
		asm.Sub.Reg(asm.R1, headers),
		asm.Add.Reg(asm.R1, gso),
		asm.Sub.Imm(asm.R1, 1),
		asm.Div.Reg(asm.R1, gso),
		asm.Mov.Reg(asm.R2, asm.R1),
		asm.Sub.Imm(asm.R2, 1),
		asm.Mul.Reg(asm.R2, headers),
		asm.Add.Reg(length, asm.R2),
		asm.Mov.Reg(gso, asm.R1).WithSymbol("counted"),
	}
}

// record adds to the key's entry, makes it, or, if there is no room, adds to that
// of Rest.
func record(mapFD int) asm.Instructions {
	lookup := asm.Instructions{
		asm.LoadMapPtr(asm.R1, mapFD),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, onKey),
		asm.FnMapLookupElem.Call(),
	}
	ins := append(asm.Instructions{}, lookup...)
	ins = append(ins,
		asm.JNE.Imm(asm.R0, 0, "add"),
		asm.StoreMem(asm.RFP, onValue, gso, asm.DWord),
		asm.StoreMem(asm.RFP, onValue+8, length, asm.DWord),
		asm.Mov.Imm(asm.R1, 1),
		asm.StoreMem(asm.RFP, onValue+16, asm.R1, asm.DWord),
		asm.LoadMapPtr(asm.R1, mapFD),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, onKey),
		asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, onValue),
		asm.Mov.Imm(asm.R4, unix.BPF_NOEXIST),
		asm.FnMapUpdateElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "exit"),
	)
	ins = append(ins, lookup...) // another CPU made it, or the map is full
	ins = append(ins, asm.JNE.Imm(asm.R0, 0, "add"))
	ins = append(ins, asm.Mov.Imm(asm.R1, 0))
	for off := int16(onKey); off < 0; off += 8 {
		ins = append(ins, asm.StoreMem(asm.RFP, off, asm.R1, asm.DWord))
	}
	ins = append(ins, asm.StoreImm(asm.RFP, onKey+2, restProto, asm.Byte))
	ins = append(ins, lookup...)
	return append(ins,
		asm.JEq.Imm(asm.R0, 0, "exit"),
		asm.AddAtomic.Mem(asm.R0, gso, asm.DWord, 0).WithSymbol("add"),
		asm.AddAtomic.Mem(asm.R0, length, asm.DWord, 8),
		asm.Mov.Imm(asm.R1, 1),
		asm.AddAtomic.Mem(asm.R0, asm.R1, asm.DWord, 16),
	)
}
