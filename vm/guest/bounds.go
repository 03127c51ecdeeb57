package guest

import (
	"fmt"
	"net/netip"

	"godwit/internal/oneline"
)

// A guest is not trusted with lengths: what its program answers is kept, written down, and sent to other hosts. A line
// bounds all of an answer (MaxLine); here is what each list of it may have, many times of what guests were seen to need.
const (
	mostNICs         = 4096  // with those of containers
	mostAddrs        = 16384 // of all NICs, with those of services in a cluster
	mostCapabilities = 256
	mostIDs          = 255 // of endpoints: there are no more
	mostUnable       = 1000
	mostSockets      = 1000
	mostWorking      = 64 // subflows of one connection; the kernel makes 8 beside the first
	mostParts        = 10 * ConnectionsMost / ConnectionsListed
	mostErrors       = 1000
	longestWord      = 128 // bytes: of a name, a state
	longestWhy       = 200 // bytes: why one of mostUnable connections stays behind
)

// A bounded result knows how much of it is too much.
type bounded interface{ bounds(b *bounds) }

// bounds collects the first thing of which there is too much.
type bounds struct{ err error }

func (b *bounds) most(what string, n, most int) {
	if b.err == nil && n > most {
		b.err = fmt.Errorf("%d %s, and no guest has more than %d", n, what, most)
	}
}

// words are shown as they are.
func (b *bounds) words(what string, words ...string) {
	for _, w := range words {
		switch {
		case b.err != nil:
		case len(w) > longestWord:
			b.err = fmt.Errorf("%s of %d bytes, and no guest's is longer than %d", what, len(w), longestWord)
		case oneline.Of(w) != w:
			b.err = fmt.Errorf("%s that cannot be shown: %q", what, w)
		}
	}
}

func (b *bounds) ends(ends ...netip.AddrPort) {
	for _, end := range ends {
		b.words("an address's zone", end.Addr().Zone())
	}
}

// Bounded is an error where a list, or a word, in what a guest said is longer than any guest's can be. Results of methods
// that have none are taken as they are.
func Bounded(result any) error {
	r, ok := result.(bounded)
	if !ok {
		return nil
	}
	var b bounds
	r.bounds(&b)
	return b.err
}

func (i *Info) bounds(b *bounds) {
	addrs := 0
	for _, nic := range i.NICs {
		addrs += max(len(nic.Addrs), len(nic.Temporary))
		b.words("a NIC's name", nic.Name)
		b.words("a NIC's MAC", nic.MAC)
	}
	b.words("the kernel's name", i.Kernel)
	b.words("a capability", i.Capabilities...)
	b.most("NICs", len(i.NICs), mostNICs)
	b.most("addresses", addrs, mostAddrs)
	b.most("capabilities", len(i.Capabilities), mostCapabilities)
}

func (c *Configured) bounds(b *bounds) {
	b.words("a NIC's name", c.Device)
	b.most("endpoints", len(c.EndpointIDs), mostIDs)
}

func (j *Joins) bounds(b *bounds) {
	b.most("connections that stay behind", len(j.Unable), mostUnable)
	b.most("endpoints", len(j.Endpoints), mostIDs)
	for _, u := range j.Unable {
		b.ends(u.Local, u.Remote)
	}
}

func (u *Users) bounds(b *bounds) {
	b.most("sockets", len(u.Sockets), mostSockets)
	for _, s := range u.Sockets {
		b.words("a socket's state", s.State)
		b.ends(s.Local, s.Remote)
	}
}

func (c *Connections) bounds(b *bounds) {
	b.most("connections", len(c.List), ConnectionsMost)
	for _, one := range c.List {
		b.words("a connection's kind", one.Kind)
		b.words("a connection's state", one.State)
		b.most("subflows of a connection", len(one.Working), mostWorking)
		b.ends(one.Local, one.Remote)
		b.ends(one.Working...)
	}
}

func (v *Verified) bounds(b *bounds) {
	b.most("errors", len(v.Errors), mostErrors)
}

func (c *Counters) bounds(b *bounds) {
	b.most("metered pairs", len(c.Meter), MostMetered)
}
