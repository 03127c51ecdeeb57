package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"godwit/cmd/guest/address"
	"godwit/cmd/guest/follow"
	"godwit/cmd/guest/work"
	"godwit/netstate/mptcp"
	"godwit/vm/guest"

	"golang.org/x/sys/unix"
)

// node is the guest as the channel sees it.
type node struct {
	server   *guest.Server
	children *family
	book     address.Book
	work     work.Set
	ticks    ticks
	meters   meters
	lists    follow.Lists
	moves    follow.Moves
	stayed   follow.Stayed
	room     mptcp.Room
	ready    lastReady
	leave    bool   // settings are left alone
	start    uint64 // see guest.Counters
}

func newNode(children *family) *node {
	n := &node{children: children, start: rand.Uint64() | 1}
	n.meters.watchAll() // now: loading a program takes long under emulation, and a handover has no time for it
	n.work = work.Set{DiskPath: "/dev/vda", Begin: children.begin, Complete: children.complete, Spin: func() *exec.Cmd {
		return exec.Command("/proc/self/exe", spinArgument)
	}}
	return n
}

// handover are the methods that a move needs, and no more.
func (n *node) handover() map[string]guest.Handler {
	return map[string]guest.Handler{
		"configure":        n.configure,
		guest.CapReady:     n.makeReady,
		guest.CapTell:      with(n.tell),
		"await_join":       n.awaitJoin,
		guest.CapTellAgain: with(n.tellAgain),
		"make_main":        with(func(_ context.Context, p macParam) (any, error) { return done{}, n.book.MakeMain(p.MAC) }),
		"retire":           with(n.retire),
		"users":            with(n.users),
		"connections": with(func(_ context.Context, p listParam) (any, error) {
			return n.lists.Connections(p.Addrs, p.Number, p.From)
		}),
		guest.CapListeners: with(func(_ context.Context, p addrsParam) (any, error) { return follow.Listeners(p.Addrs) }),
		"drop_address":     with(n.dropAddress),
		"ticks":            with(n.setTicks),
		"counters":         with(n.counters),
	}
}

// all are those of the lab's guests.
func (n *node) all() map[string]guest.Handler {
	methods := n.handover()
	methods["run"] = with(n.run)
	methods["verify"] = with(func(context.Context, struct{}) (any, error) { return n.work.Verify(), nil })
	methods["exec"] = with(n.exec)
	methods["poweroff"] = with(func(context.Context, struct{}) (any, error) { return done{}, n.end(unix.LINUX_REBOOT_CMD_POWER_OFF) })
	methods["reboot"] = with(func(context.Context, struct{}) (any, error) { return done{}, n.end(unix.LINUX_REBOOT_CMD_RESTART) })
	return methods
}

// offer makes the server of methods, and of info, which names them.
func (n *node) offer(methods map[string]guest.Handler) {
	names := []string{"info", guest.CapAnnounce, guest.CapPorts}
	for name := range methods {
		names = append(names, name)
	}
	slices.Sort(names)
	methods["info"] = with(func(context.Context, struct{}) (any, error) { return info(names) })
	n.server = guest.NewServer(methods)
}

// serve carries methods out for whoever is at the other end of the port, for ever.
func (n *node) serve(ctx context.Context, name string, methods map[string]guest.Handler) {
	n.offer(methods)
	go watchMoves(ctx, n.moves.Watch)
	said := ""
	for ; ; time.Sleep(time.Second) {
		port, err := openPort(name)
		if err == nil {
			err = n.server.Serve(ctx, port, port)
			port.Close()
		}
		if said != err.Error() {
			said = err.Error()
			say("guest channel: %v", err)
		}
	}
}

// watchAgain is after how long what could not be watched is tried again, such as in a guest that had no descriptor or
// memory left.
const watchAgain = time.Minute

// watchMoves looks after clients that move, for as long as the kernel tells of their connections.
func watchMoves(ctx context.Context, watch func(context.Context) error) {
	for ctx.Err() == nil {
		pause := time.Second
		if err := watch(ctx); errors.Is(err, mptcp.ErrUnsupported) {
			return
		} else if err != nil {
			pause = watchAgain
		}
		time.Sleep(pause)
	}
}

type (
	done       struct{}
	macParam   struct{ MAC string }
	addrsParam struct{ Addrs []netip.Addr }
	listParam  struct {
		Addrs  []netip.Addr
		Number uint64
		From   int
	}
	tickParam struct {
		EveryMS int64 `json:"every_ms"`
	}
	runParam struct{ Lines []string }
)

// with makes a handler of a function that takes typed parameters.
func with[P any](carryOut func(context.Context, P) (any, error)) guest.Handler {
	return func(ctx context.Context, _ string, raw json.RawMessage) (any, error) {
		var params P
		if len(raw) > 0 {
			if err := json.Unmarshal(raw, &params); err != nil {
				return nil, fmt.Errorf("read parameters: %w", err)
			}
		}
		return carryOut(ctx, params)
	}
}

// lastReady are the parameters that ready was asked with last: those of configure are the same, to
// the byte, and a guest that has just arrived need not take them apart.
type lastReady struct {
	mu  sync.Mutex
	raw []byte
	p   guest.Configure
}

func (n *node) makeReady(ctx context.Context, id string, raw json.RawMessage) (any, error) {
	n.meters.watchAll() // the NIC may have been plugged in since
	n.loosen()
	return with(func(_ context.Context, p guest.Configure) (any, error) {
		n.ready.mu.Lock()
		n.ready.raw, n.ready.p = slices.Clone(raw), p
		n.ready.mu.Unlock()
		err := n.book.Ready(p)
		n.giveRoom(bare(p.Addrs), roomFor)
		return done{}, err
	})(ctx, id, raw)
}

// roomFor is how long room is given for at most: addresses are made ready again each time that a move goes on.
const roomFor = 10 * time.Minute

// giveRoom gives what joins at these addresses room to receive in; none of them: nobody any more. Without, they are
// slower.
func (n *node) giveRoom(addrs []netip.Addr, d time.Duration) {
	bytes, err := mptcp.RoomForEach()
	if err == nil && len(addrs) > 0 && bytes > 0 {
		err = n.room.Give(addrs, bytes, d)
	} else {
		n.room.End()
	}
	if err != nil {
		say("give connections that follow room to receive in: %v", err)
	}
}

func bare(prefixes []netip.Prefix) (addrs []netip.Addr) {
	for _, prefix := range prefixes {
		addrs = append(addrs, prefix.Addr())
	}
	return addrs
}

func (n *node) configure(ctx context.Context, id string, raw json.RawMessage) (any, error) {
	n.ready.mu.Lock()
	p, known := n.ready.p, bytes.Equal(n.ready.raw, raw)
	n.ready.mu.Unlock()
	if known {
		n.meters.hasAgain(p.Addrs)
		return n.book.Configure(p)
	}
	n.loosen()
	return with(func(_ context.Context, p guest.Configure) (any, error) {
		n.meters.hasAgain(p.Addrs)
		return n.book.Configure(p)
	})(ctx, id, raw)
}

// tell also counts what comes to those addresses from now on: peers come as soon as the guest has arrived.
func (n *node) tell(_ context.Context, p macParam) (any, error) {
	n.ready.mu.Lock()
	addrs := n.ready.p.Addrs
	n.ready.mu.Unlock()
	n.meters.hasAgain(addrs)
	return done{}, n.book.Tell(p.MAC)
}

// loosen is the function of that name, as somebody may have made the filter a strict one since the program began.
func (n *node) loosen() {
	if n.leave {
		return
	}
	if err := loosen(); err != nil {
		say("set rp_filter: %v", err)
	}
}

func (n *node) awaitJoin(ctx context.Context, id string, raw json.RawMessage) (any, error) {
	return with(func(ctx context.Context, p guest.AwaitJoin) (any, error) {
		joins, err := follow.Await(ctx, p, &n.stayed, &n.moves, func(joined, total int) {
			n.server.Emit(guest.Event{Name: guest.EventJoin, Call: id, Total: total, Joined: joined})
		})
		joins.LastMS = max(joins.LastMS, n.moves.Since(p.Addrs).Milliseconds()) // both are at least so long ago
		return joins, err
	})(ctx, id, raw)
}

// tellAgain gives room for as long as it may take: a move that begins meanwhile gives its own.
func (n *node) tellAgain(ctx context.Context, p guest.TellAgain) (any, error) {
	return follow.TellAgain(ctx, p, &n.moves, func() { n.giveRoom(p.Addrs, time.Duration(p.LimitMS)*time.Millisecond) })
}

// retire also takes back what was announced once more, when all have left the old addresses.
func (n *node) retire(_ context.Context, p guest.Retire) (any, error) {
	err := n.book.Retire(p)
	n.meters.gaveUp(p.Addrs) // at once
	if err != nil {
		return done{}, err
	}
	n.room.End() // else some are waited for again
	follow.Tidy()
	return done{}, nil
}

func (n *node) dropAddress(_ context.Context, p addrsParam) (any, error) {
	defer n.meters.gaveUp(p.Addrs)
	return done{}, n.book.Drop(p.Addrs)
}

func (n *node) users(_ context.Context, p addrsParam) (any, error) {
	users, err := follow.Users(p.Addrs)
	users.UDPCount = n.meters.udp(p.Addrs)
	if why := n.meters.uncounted(); why != nil {
		users.Uncounted = why.Error()
	}
	return users, err
}

func (n *node) setTicks(_ context.Context, p tickParam) (any, error) {
	if p.EveryMS < 0 {
		return nil, fmt.Errorf("ticks every %d ms: below 0", p.EveryMS)
	}
	n.ticks.set(time.Duration(p.EveryMS)*time.Millisecond, n.server.Emit)
	return done{}, nil
}

func (n *node) run(_ context.Context, p runParam) (any, error) {
	// The host that asked may be gone before the areas are full: they are filled
	// all the same, and it can ask again.
	return done{}, n.work.Start(context.Background(), p.Lines)
}

// end stops the machine, after a moment in which the answer gets out. All other processes
// end first, as in any shutdown, then the network: see address.Book.Close.
func (n *node) end(how int) error {
	go func() {
		time.Sleep(100 * time.Millisecond)
		_ = unix.Kill(-1, unix.SIGKILL)
		if err := n.book.Close(); err != nil {
			say("end: %v", err)
		}
		unix.Sync()
		if err := unix.Reboot(how); err != nil {
			say("end: %v", err)
			os.Exit(1)
		}
	}()
	return nil
}
