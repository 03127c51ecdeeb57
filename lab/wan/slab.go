package wan

// maxPacket is the most one read of a TUN device gives: the virtio header and the
// largest IP packet.
const maxPacket = vnetLen + 65535

// slabSize lets several of the largest packets share a slab.
const slabSize = 8 * maxPacket

// keptSlabs bounds what stays allocated after a burst.
const keptSlabs = 16

// slab is a piece of memory that packets are read into, one behind the other. It is
// free again when none of its packets is waiting any more.
type slab struct {
	memory [slabSize]byte
	used   int
	refs   int
}

// slabs hands out room for packets.
type slabs struct {
	current *slab
	free    []*slab
}

// room returns space for one packet of any size. It is taken by keep.
func (s *slabs) room() []byte {
	if s.current != nil && s.current.used+maxPacket > slabSize {
		if s.current.refs == 0 {
			s.current.used = 0
		} else {
			s.current = nil // lives on until its last packet is released
		}
	}
	if s.current == nil {
		if n := len(s.free); n > 0 {
			s.current, s.free = s.free[n-1], s.free[:n-1]
		} else {
			s.current = new(slab)
		}
	}
	return s.current.memory[s.current.used : s.current.used+maxPacket]
}

// keep marks n bytes of the last room as used, because a unit refers to them. Without
// it the next packet overwrites them.
func (s *slabs) keep(n int) { s.current.used += n }

// release says that one unit no longer refers to sl.
func (s *slabs) release(sl *slab) {
	sl.refs--
	if sl.refs > 0 {
		return
	}
	sl.used = 0
	if sl != s.current && len(s.free) < keptSlabs {
		s.free = append(s.free, sl)
	}
}
