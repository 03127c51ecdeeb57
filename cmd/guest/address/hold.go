package address

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"godwit/netstate/dump"

	"golang.org/x/sys/unix"
)

// Programs that configure a guest's network take its NICs for theirs. One that is started anew, or sees a NIC come up,
// takes away rules, addresses and routes that it does not know, and gives the NIC what it had at home. While the guest
// moves, the move looks at that itself; from one move to the next, this does.

const (
	// holdAfter is how long after a handover it begins: all have followed, and the guest is not busy with it any more.
	holdAfter = 2 * time.Second
	// holdPause is how long what others change is let be: they do it in several steps.
	holdPause = time.Second
	// holdAgain is after how long what could not be watched is tried again.
	holdAgain = time.Minute
	// holdMost is how often it is mended within holdWithin. Who undoes it as often does so on purpose, or for ever.
	holdMost   = 10
	holdWithin = time.Hour
)

// holding is what is known of that. It is under the book's lock.
type holding struct {
	say          func(format string, args ...any)
	after, pause time.Duration
	begin        *time.Timer // nil: not before the next handover
	term         uint64      // of begin: one before may have fired, and wait for the lock
	changes      *changes    // nil: nobody watches
	mended       []time.Time // the last ones
}

// Hold has what a handover gives kept from one to the next, until ctx ends: rules, addresses and routes that were given
// are put back where others take them away, and addresses that were taken from a NIC are taken from it again. Nothing is
// done from just before the guest leaves until some time after the handover, or for readyFor where that does not end.
// What is done is said, and where somebody undoes it on and on, that it is given up.
func (b *Book) Hold(ctx context.Context, say func(format string, args ...any)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hold = &holding{say: say, after: holdAfter, pause: holdPause}
	context.AfterFunc(ctx, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.holdNot()
		b.hold = nil
	})
}

// holdSoon begins to watch, when the guest has been left alone for a while; not where that was given up.
func (b *Book) holdSoon() {
	if h := b.hold; h != nil && h.changes == nil && len(h.mended) < holdMost && len(b.nics) > 0 {
		b.holdIn(h, h.after)
	}
}

// holdLater is for a move that begins: it ends what holdNot ends, and begins it again after readyFor where nobody does
// before: a move that fails may leave the guest as it was, or on both NICs. A guest is away for much less, and what it
// is asked first where it arrives begins that time anew. To end it waits for who reads: peers are told before that.
func (b *Book) holdLater() {
	b.holdNot()
	if h := b.hold; h != nil {
		b.holdIn(h, readyFor)
	}
}

func (b *Book) holdIn(h *holding, after time.Duration) {
	if h.begin != nil {
		h.begin.Stop()
	}
	h.term++
	term := h.term
	h.begin = time.AfterFunc(after, func() { b.watch(h, term) })
}

// holdNot ends that: a move does what is to be done itself, and the guest has no time for anything else as it arrives.
func (b *Book) holdNot() {
	h := b.hold
	if h == nil {
		return
	}
	if h.begin != nil {
		h.begin.Stop()
		h.begin = nil
	}
	if h.changes != nil {
		h.changes.file.Close()
		h.changes = nil
	}
	h.mended = nil
}

// watch mends what there is to mend, each time that others have changed something, until holdNot.
func (b *Book) watch(h *holding, term uint64) {
	c := b.open(h, term)
	for c != nil && b.mendOnce(h, c) && c.next() {
		time.Sleep(h.pause)
		c.drain()
	}
}

// open is what watch reads; nil: it is not to.
func (b *Book) open(h *holding, term uint64) *changes {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.hold != h || h.begin == nil || h.term != term {
		return nil
	}
	h.begin = nil
	if len(b.nics) == 0 { // it was told, and never moved
		return nil
	}
	c, err := b.listen()
	if err != nil {
		h.say("watch rules and addresses: %v", err)
		b.holdIn(h, holdAgain)
		return nil
	}
	h.changes = c
	return c
}

// mendOnce mends what there is to mend, and says whether to go on.
func (b *Book) mendOnce(h *holding, c *changes) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if h.changes != c {
		return false
	}
	mended, err := b.mend()
	if len(mended) == 0 && err == nil {
		return true
	}
	if len(mended) > 0 {
		h.say("another program of this guest had changed what its last move gave it; mended: %s. "+
			"Have that program leave the NICs alone: see docs/guest.md", strings.Join(mended, ", "))
	}
	if err != nil {
		h.say("mend what another program of this guest has changed: %v", err)
	}
	now := time.Now()
	h.mended = append(slices.DeleteFunc(h.mended, func(t time.Time) bool { return now.Sub(t) > holdWithin }), now)
	if len(h.mended) < holdMost {
		return true
	}
	h.say("it was changed %d times within an hour, and is left so until the next move", holdMost)
	c.file.Close()
	h.changes = nil
	return false
}

// changes are those of rules, and of the addresses and state of some links.
type changes struct {
	file  *os.File
	links map[uint32]bool
}

// heard are the groups of rtnetlink that tell of them.
const heard = 1<<(unix.RTNLGRP_LINK-1) | 1<<(unix.RTNLGRP_IPV4_IFADDR-1) | 1<<(unix.RTNLGRP_IPV6_IFADDR-1) |
	1<<(unix.RTNLGRP_IPV4_RULE-1) | 1<<(unix.RTNLGRP_IPV6_RULE-1)

// listen begins to hear of changes.
func (b *Book) listen() (*changes, error) {
	links, err := dump.Links()
	if err != nil {
		return nil, fmt.Errorf("list NICs: %w", err)
	}
	c := &changes{links: make(map[uint32]bool)}
	for _, mac := range b.held() {
		if link := nicAmong(links, mac); link != nil {
			c.links[uint32(link.Attrs().Index)] = true //nolint:gosec // an index of the kernel's
		}
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("netlink: %w", err)
	}
	c.file = os.NewFile(uintptr(fd), "netlink")
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: heard}); err != nil {
		c.file.Close()
		return nil, fmt.Errorf("netlink: %w", err)
	}
	return c, nil
}

// headSize is that of struct nlmsghdr, and of ifinfomsg and ifaddrmsg up to the link's index, which both have there.
// What comes after that is not looked at.
const headSize = unix.SizeofNlMsghdr + 8

// next returns when something has changed that matters; false: nobody hears of it any more.
func (c *changes) next() bool {
	var head [headSize]byte
	for {
		n, err := c.file.Read(head[:])
		switch {
		case errors.Is(err, unix.ENOBUFS):
			return true // there was more than the kernel keeps
		case err != nil:
			return false
		case n < headSize:
			continue
		}
		switch binary.NativeEndian.Uint16(head[4:]) {
		case unix.RTM_DELRULE:
			return true
		case unix.RTM_NEWADDR, unix.RTM_DELADDR, unix.RTM_NEWLINK:
			if c.links[binary.NativeEndian.Uint32(head[unix.SizeofNlMsghdr+4:])] {
				return true
			}
		}
	}
}

// drain forgets what has changed until now.
func (c *changes) drain() {
	raw, err := c.file.SyscallConn()
	if err != nil {
		return // next says why
	}
	_ = raw.Control(func(fd uintptr) {
		var head [headSize]byte
		for {
			if _, err := unix.Read(int(fd), head[:]); err != nil && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ENOBUFS) {
				return // EAGAIN: no more
			}
		}
	})
}
