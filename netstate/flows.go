package netstate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// A Flow is what took a guest's detour between two ports lately. TCP and UDP only.
type Flow struct {
	Protocol string         `json:"protocol"` // tcp, udp
	Guest    netip.AddrPort `json:"guest"`    // the guest's end
	Client   netip.AddrPort `json:"client"`
	Packets  uint64         `json:"packets"` // both ways where the guest lives; from the client at an address's home
	Bytes    uint64         `json:"bytes"`
	Idle     time.Duration  `json:"idle_ns"` // since its last packet
}

const (
	// FlowMemory is how long a flow without packets is remembered.
	FlowMemory = 5 * time.Minute
	// flowsKept bounds the flows of a guest and family; those past it are not seen.
	flowsKept = 65535
)

// flowSet is the set of a guest's flows in one family, as `nft list table bridge
// godwit` shows it: protocol, the guest's end, the client's, and a counter each.
func flowSet(guest string, v4 bool) *nftables.Set {
	name, addr := "flows6_"+guest, nftables.TypeIP6Addr
	if v4 {
		name, addr = "flows4_"+guest, nftables.TypeIPAddr
	}
	return &nftables.Set{
		Table: table(), Name: name, Dynamic: true, HasTimeout: true, Timeout: FlowMemory, Concatenation: true, Size: flowsKept,
		KeyType: nftables.MustConcatSetType(nftables.TypeInetProto, addr, nftables.TypeInetService, addr, nftables.TypeInetService),
	}
}

// Registers of 32 bits (NFT_REG32_00 and on).
const firstRegister = 8

// noteFlow returns expressions that count the packet of a guest's address as of its
// flow. They stand in a rule of their own: a full set ends the rule. out: the packet
// comes from the guest.
func noteFlow(guest string, addr netip.Addr, out bool) []expr.Any {
	words, local, remote := uint32(1), uint32(16), uint32(12)
	if addr.Is6() {
		words, local, remote = 4, 24, 8
	}
	localPort, remotePort := uint32(2), uint32(0)
	if out {
		local, remote, localPort, remotePort = remote, local, remotePort, localPort
	}
	at := func(n uint32) uint32 { return firstRegister + n }
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: at(0)},
		&expr.Payload{DestRegister: at(1), Base: expr.PayloadBaseNetworkHeader, Offset: local, Len: 4 * words},
		&expr.Payload{DestRegister: at(1 + words), Base: expr.PayloadBaseTransportHeader, Offset: localPort, Len: 2},
		&expr.Payload{DestRegister: at(2 + words), Base: expr.PayloadBaseNetworkHeader, Offset: remote, Len: 4 * words},
		&expr.Payload{DestRegister: at(2 + 2*words), Base: expr.PayloadBaseTransportHeader, Offset: remotePort, Len: 2},
		&expr.Dynset{SrcRegKey: at(0), SetName: flowSet(guest, addr.Is4()).Name, Operation: uint32(unix.NFT_DYNSET_OP_UPDATE), Exprs: []expr.Any{&expr.Counter{}}},
	}
}

// protocols are those that have ports, and flows.
var protocols = map[byte]string{unix.IPPROTO_TCP: "tcp", unix.IPPROTO_UDP: "udp"}

// flowRules are the rules that note the flows of addr that match: one for each
// protocol. way is for the comment.
func flowRules(guest string, addr netip.Addr, way string, out bool, match []expr.Any) []bridgeRule {
	var rules []bridgeRule
	for _, p := range []byte{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
		is := []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, equals([]byte{p})}
		rules = append(rules, bridgeRule{words(flowsWord, "of", addr.String(), "protocol", protocols[p], "way", way), join(match, is, noteFlow(guest, addr, out))})
	}
	return rules
}

// flowsWord begins the comments of rules that need a guest's sets.
const flowsWord = "flows"

// sets makes the sets of a guest known.
func (p *page) sets(guest string) {
	for _, v4 := range []bool{true, false} {
		if p.err == nil {
			p.err = p.conn.AddSet(flowSet(guest, v4), nil)
		}
	}
}

// dropSets takes them out, whether they are there or not.
func (p *page) dropSets(guest string) {
	p.sets(guest)
	for _, v4 := range []bool{true, false} {
		if p.err == nil {
			p.conn.DelSet(flowSet(guest, v4))
		}
	}
}

// Flows lists what took the guest's detours here in the last FlowMemory, the latest
// first. A guest that has none is no error. It changes nothing and waits for nobody: of a long list, which who
// sends from many ports makes, no other guest's flip is to wait.
func Flows(guest string) ([]Flow, error) {
	b, err := readBook()
	if err != nil {
		return nil, fmt.Errorf("list flows of guest %s: %w", guest, err)
	}
	noted := func(comment string) bool { return strings.HasPrefix(comment, flowsWord+" ") }
	if !slices.ContainsFunc(b.chains[chainIn+guest], noted) && !slices.ContainsFunc(b.chains[chainOut+guest], noted) {
		return nil, nil // nothing of it takes a detour
	}
	c, err := openNFT()
	if err != nil {
		return nil, fmt.Errorf("open nftables: %w", err)
	}
	var flows []Flow
	for _, v4 := range []bool{true, false} {
		elements, err := c.GetSetElements(flowSet(guest, v4))
		if errors.Is(err, unix.ENOENT) {
			return nil, nil // its state was cleared just now
		}
		if err != nil {
			return nil, fmt.Errorf("list flows of guest %s: %w", guest, err)
		}
		for _, e := range elements {
			if f, ok := readFlow(e, v4); ok {
				flows = append(flows, f)
			}
		}
	}
	slices.SortFunc(flows, func(a, b Flow) int { return int(a.Idle - b.Idle) })
	return flows, nil
}

func readFlow(e nftables.SetElement, v4 bool) (Flow, bool) {
	size := 16
	if v4 {
		size = 4
	}
	if len(e.Key) < 4+2*(size+4) {
		return Flow{}, false
	}
	end := func(b []byte) netip.AddrPort {
		addr, _ := netip.AddrFromSlice(b[:size])
		return netip.AddrPortFrom(addr, binary.BigEndian.Uint16(b[size:]))
	}
	f := Flow{Protocol: protocols[e.Key[0]], Guest: end(e.Key[4:]), Client: end(e.Key[8+size:]), Idle: max(FlowMemory-e.Expires, 0)}
	if e.Counter != nil {
		f.Packets, f.Bytes = e.Counter.Packets, e.Counter.Bytes
	}
	return f, f.Protocol != ""
}
