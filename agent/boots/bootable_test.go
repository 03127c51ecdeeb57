package boots

import (
	"bytes"
	"context"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/guests"
	"godwit/agent/record"
	"godwit/agent/statefile"
	"godwit/migration"
	"godwit/vm"
	"godwit/vm/guest"
)

// bootable is the inside of a guest that can boot anew, and has 10.1.1.20 on its first NIC by its own configuration.
type bootable struct {
	guest.Channel
	mu      sync.Mutex
	id      string
	since   time.Time
	silent  bool
	err     error                  // of Configure
	nics    [2]map[netip.Addr]bool // addresses
	asked   []guest.Configure      // in this boot
	retired []guest.Retire         // the same
	infos   int                    // questions what it is
	undone  func(*bootable)        // after each Configure, if set
	resets  chan vm.Event          // of its QEMU
}

// vmOf is its QEMU, which does not end.
type vmOf struct {
	vm.Machine
	resets chan vm.Event
}

func (vmOf) Done() <-chan struct{} { return nil }

func (v vmOf) Events(context.Context) <-chan vm.Event { return v.resets }
func (vmOf) Announce(context.Context) error           { return nil }
func (vmOf) GuestChannel() string                     { return "" }

func (*bootable) Done() <-chan struct{} { return nil }

func (b *bootable) Info(ctx context.Context) (guest.Info, error) {
	b.mu.Lock()
	b.infos++
	silent := b.silent
	b.mu.Unlock()
	if silent {
		<-ctx.Done()
		return guest.Info{}, ctx.Err()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	info := guest.Info{BootID: b.id, UptimeMS: time.Since(b.since).Milliseconds()}
	for i, addrs := range b.nics {
		n := guest.NIC{MAC: bootMACs[i], Up: len(addrs) > 0}
		for addr := range addrs {
			n.Addrs = append(n.Addrs, netip.PrefixFrom(addr, 24))
		}
		info.NICs = append(info.NICs, n)
	}
	return info, nil
}

var bootMACs = [2]string{"52:54:00:00:01:0a", "52:54:00:00:01:0b"}

func nicOf(mac string) int { return slices.Index(bootMACs[:], mac) }

func (b *bootable) Configure(_ context.Context, p guest.Configure) (guest.Configured, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = append(b.asked, p)
	if b.err != nil {
		return guest.Configured{}, b.err
	}
	for _, addr := range p.Addrs {
		b.nics[nicOf(p.MAC)][addr.Addr()] = true
	}
	if b.undone != nil {
		b.undone(b)
	}
	return guest.Configured{EndpointIDs: []uint8{5}}, nil // others' endpoints have the ids before
}

func (b *bootable) Retire(_ context.Context, p guest.Retire) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.retired = append(b.retired, p)
	for _, addr := range p.Addrs {
		delete(b.nics[nicOf(p.MAC)], addr)
		if p.Keep {
			b.nics[nicOf(p.NewMAC)][addr] = true
		}
	}
	return nil
}

func (b *bootable) DropAddress(_ context.Context, addrs ...netip.Addr) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, addr := range addrs {
		delete(b.nics[0], addr)
		delete(b.nics[1], addr)
	}
	return nil
}

// configures itself as it does when it boots.
func (b *bootable) configuresItself() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nics = [2]map[netip.Addr]bool{{netip.MustParseAddr("10.1.1.20"): true}, {}}
}

// boots is that it boots anew, and answers after a while.
func (b *bootable) boots(id string, after time.Duration) {
	b.mu.Lock()
	b.silent, b.id, b.since, b.asked, b.retired = true, id, time.Now(), nil, nil
	b.mu.Unlock()
	b.configuresItself()
	if b.resets != nil {
		b.resets <- vm.Event{Name: "RESET"}
	}
	time.Sleep(after)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.silent = false
}

// told is what it was asked to in this boot.
func (b *bootable) told() (asked []guest.Configure, retired []guest.Retire) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.asked), slices.Clone(b.retired)
}

// change is what happens in it meanwhile.
func (b *bootable) change(do func(*bootable)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	do(b)
}

// has says what its NICs have.
func (b *bootable) has() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []string
	for _, n := range b.nics {
		var addrs []string
		for addr := range n {
			addrs = append(addrs, addr.String())
		}
		slices.Sort(addrs)
		out = append(out, strings.Join(addrs, " "))
	}
	return strings.Join(out, " | ")
}

// said are the lines of a log, which others write meanwhile.
type said struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.Write(p)
}

func (s *said) count(level string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Count(s.all.String(), "level="+level)
}

// movedGuest is a guest that rome has by its handover m-00000001, in boot "first", with these addresses.
func movedGuest(t *testing.T, addresses ...migration.Address) (*Keeper, *guests.Guest, *bootable, *said) {
	t.Helper()
	lines := &said{}
	c, log := &config.Config{Host: "rome", State: t.TempDir(), Run: t.TempDir()}, slog.New(slog.NewTextHandler(lines, nil))
	c.Network = config.Network{Bridge: "none", V4: netip.MustParsePrefix("10.2.1.0/24"), Gateway4: netip.MustParseAddr("10.2.1.1")}
	k := &Keeper{Config: c, Guests: guests.In(c.StatePath("guests")), Records: record.NewStore(c.Host, c.StatePath("history"), log), Log: log}
	k.Coming = func(string) bool { return false }
	k.Taken = func() map[netip.Addr]string {
		out := map[netip.Addr]string{}
		for _, g := range k.Guests.All() {
			for _, addr := range g.Held().Addresses {
				out[addr.Prefix.Addr()] = g.Name()
			}
		}
		return out
	}
	in := &bootable{id: "first", since: time.Now(), resets: make(chan vm.Event, 1)}
	in.nics = [2]map[netip.Addr]bool{{}, {netip.MustParseAddr("10.2.1.20"): true}}
	g := guests.New(care.Held{
		Description: config.Description{Name: "web", Memory: 1 << 28, NICs: []config.NIC{{MAC: bootMACs[0]}, {MAC: bootMACs[1]}}, Start: []string{"qemu"}},
		Dir:         filepath.Join(c.Run, "guests", "web-2"), Active: 1, Addresses: addresses, Table: guest.FirstTable + 1, Boot: "first",
	}, vmOf{resets: in.resets})
	g.SpeakBy(in)
	keep(t, k, g)
	rep := record.Report{ID: "m-00000001", Guest: "web", Outcome: migration.Completed, Ended: 1, Notes: []string{"it took long"}}
	if err := statefile.Write(c.StatePath("history", "m-00000001-destination.json"), rep); err != nil {
		t.Fatal(err)
	}
	return k, g, in, lines
}

func keep(t *testing.T, k *Keeper, g *guests.Guest) {
	t.Helper()
	if err := k.Guests.Save(g); err != nil {
		t.Fatal(err)
	}
}

// onDisk is what an agent that is started now knows of the only guest.
func onDisk(t *testing.T, k *Keeper) care.Held {
	t.Helper()
	all, errs := k.Guests.Remembered()
	if len(errs) > 0 || len(all) != 1 {
		t.Fatalf("%+v, %v", all, errs)
	}
	return all[0]
}

func givenAddress() migration.Address {
	return migration.Address{Prefix: netip.MustParsePrefix("10.2.1.20/24"), Gateway: netip.MustParseAddr("10.2.1.1"), Home: "rome", Endpoint: 3, Handover: "m-00000001"}
}

func keptAddress() migration.Address {
	return migration.Address{Prefix: netip.MustParsePrefix("10.1.1.20/24"), Gateway: netip.MustParseAddr("10.1.1.1"), Home: "paris"}
}
