package netstate_test

import (
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"godwit/netstate"
	"godwit/netstate/internal/nettest"
	"godwit/netstate/netns"
)

const (
	short = 300 * time.Millisecond // how long a broken way is watched
	long  = 3 * time.Second        // and how long one is given that is to work
)

// TestFlipLosesNothing: a stream of 1 kHz in each family, prepared, then flipped
// to and fro; every datagram reaches one of the two guests once, and every
// answer the client. The counters saw the detour. Clear leaves no trace.
func TestFlipLosesNothing(t *testing.T) {
	for _, kind := range []string{"wireguard", "vxlan"} {
		t.Run(kind, func(t *testing.T) {
			flipLosesNothing(t, newWorld(t, kind))
		})
	}
}

func flipLosesNothing(t *testing.T, w *world) {
	a, b := w.echo("ga"), w.echo("gb")
	before := w.dumps()
	if !w.answers(guest4, long) || !w.answers(guest6, long) {
		t.Fatal("the guest does not answer at home")
	}
	w.set("hb", abroad())
	w.set("ha", home(false))
	stream4, stream6 := w.stream(guest4, 1), w.stream(guest6, 1<<24)
	goOn(stream4, stream6)
	if b.count() != 0 {
		t.Fatal("the prepared state moved packets already")
	}
	took := map[bool][]time.Duration{}
	for i := range 10 {
		s := w.prepared(i%2 == 0)
		w.Do("ha", func() error {
			start := time.Now()
			err := netstate.Set(s)
			took[i%2 == 0] = append(took[i%2 == 0], time.Since(start).Round(10*time.Microsecond))
			return err
		})
		goOn(stream4, stream6)
	}
	t.Logf("flips there %v, back %v", took[true], took[false])
	stream4.end(t, a, b)
	stream6.end(t, a, b)
	w.flip(true)
	w.answers(guest4, short)
	if n := w.redirected(); n < max(1, b.count()) {
		t.Errorf("%d redirected; %d came", n, b.count())
	}
	w.Do("ha", func() error {
		inv, err := netstate.Found()
		if len(inv.Stray) != 0 {
			t.Error("stray:", inv.Stray)
		}
		want := home(true)
		want.LAN = w.lan
		if diff := cmp.Diff(want, inv.States["web"], cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
			t.Error("state found:", diff)
		}
		return err
	})
	w.cleared(before, "web")
}

// redirected is how many frames the host ha routed into the tunnel.
func (w *world) redirected() (sum int) {
	for _, m := range redirections.FindAllStringSubmatch(w.Run("ha", "nft", "list", "counters", "table", "bridge", "godwit"), -1) {
		n, _ := strconv.Atoi(m[1])
		sum += n
	}
	return sum
}

var redirections = regexp.MustCompile(`counter away_\S+ {\s*packets (\d+)`)

// TestEachCure takes the cures of Le & Nahum §IV out, one by one: without it the
// client loses the guest, and Set puts exactly it back.
func TestEachCure(t *testing.T) {
	w := newWorld(t, "wireguard")
	w.IP("ga", "link set dev eth0 down") // it was stopped, or its ARP would refresh the router
	w.echo("gb")
	w.set("hb", abroad())
	w.set("ha", home(true))
	fam := []struct{ ip, guest, gateway string }{{"-4", "10.1.1.5", "10.1.1.1"}, {"-6", "fd00:1:1::5", "fd00:1:1::1"}}
	for i, addr := range []netip.Addr{guest4, guest6} {
		f := fam[i]
		if !w.answers(addr, long) {
			t.Fatalf("%s does not answer through the tunnel", addr)
		}
		for _, c := range []struct{ name, at, out, then string }{
			{"MAC redirect at home", "ha", "nft flush chain bridge godwit in-web", ""},
			{"host route at home", "ha", "ip ROUTE del GUEST dev gw0", ""},
			{"proxy neighbour at home", "ha", "ip ROUTE neigh del proxy GUEST dev br-guest", "r: ip neigh flush dev lana"},
			{"return rule at home", "ha", "ip RULE del priority 45", ""},
			{"host route abroad", "hb", "ip ROUTE del GUEST dev br-guest", ""},
			{"neighbour entry abroad", "hb", "ip ROUTE neigh del GUEST dev br-guest", "gb: silent"},
			{"source rule abroad", "hb", "ip RULE del priority 44", ""},
			{"source route abroad", "hb", "TABLE", ""},
			{"MAC redirect abroad", "hb", "nft flush chain bridge godwit in-web", ""},
			{"proxy gateway abroad", "hb", "ip ROUTE neigh del proxy GATEWAY dev br-guest", "gb: ip neigh flush dev eth0"},
		} {
			t.Run(f.ip+" "+c.name, func(t *testing.T) {
				command := strings.NewReplacer("ip ROUTE neigh", "ip "+f.ip+" neigh", "ip ROUTE", "ip "+f.ip+" route", "ip RULE", "ip "+f.ip+" rule",
					"GUEST", f.guest, "GATEWAY", f.gateway,
					"TABLE", "ip "+f.ip+" route flush table $(ip "+f.ip+" rule show priority 44 | sed 's/.*lookup //')").Replace(c.out)
				if c.then == "gb: silent" {
					router := w.Run("r", "cat", "/sys/class/net/lana/address")
					w.IP("gb", "link set dev eth0 arp off\n"+f.ip+" neigh replace "+f.gateway+" dev eth0 nud permanent lladdr "+router)
					if f.ip == "-6" {
						w.Run("gb", "nft", "add table ip6 s; add chain ip6 s i { type filter hook input priority 0; }; add rule ip6 s i icmpv6 type nd-neighbor-solicit drop")
					}
					defer func() {
						w.Try("gb", "nft", "flush ruleset")
						w.IP("gb", f.ip+" neigh del "+f.gateway+" dev eth0\nlink set dev eth0 arp on")
					}()
				}
				w.remind()
				if !w.answers(addr, long) {
					t.Fatal("broken before")
				}
				w.Run(c.at, "sh", "-c", command)
				if ns, cmd, ok := strings.Cut(c.then, ": ip "); ok {
					w.IP(ns, cmd)
				}
				if w.answers(addr, short) {
					t.Error("the guest answers without it")
				}
				s := home(true)
				if c.at == "hb" {
					s = abroad()
				}
				w.set(c.at, s)
				if !w.answers(addr, long) {
					t.Error("Set did not put it back")
				}
			})
		}
	}
}

// asksAgain is when a neighbour whose question was lost asks once more (RFC 4861 §10,
// RETRANS_TIMER; ARP alike): an answer that comes sooner needed no second question.
const asksAgain = time.Second

// TestCaches: every neighbour cache may expire while the guest is away.
func TestCaches(t *testing.T) {
	w := newWorld(t, "wireguard")
	w.echo("gb")
	cachesExpire(t, w)
}

func cachesExpire(t *testing.T, w *world) {
	w.set("hb", abroad())
	w.set("ha", home(true))
	for _, flush := range [][2]string{{"r", "lana"}, {"gb", "eth0"}, {"ha", "br-guest"}, {"hb", "br-guest"}} {
		w.IP(flush[0], "neigh flush dev "+flush[1]+" nud all")
		if flush[0][0] == 'h' {
			s := map[string]netstate.State{"ha": home(true), "hb": abroad()}[flush[0]]
			w.set(flush[0], s) // nud all takes permanent entries too
		}
		for _, addr := range []netip.Addr{guest4, guest6} {
			if d, ok := w.answersAfter("c", addr, long); !ok {
				t.Errorf("%s does not answer after the caches of %s went", addr, flush[0])
			} else if d > asksAgain {
				t.Errorf("%s: answer only %s after the caches of %s went", addr, d, flush[0])
			}
		}
	}
}

// TestClosedTap: once flipped, nothing enters the guest's tap at home, not even
// broadcasts; before and after, it does.
func TestClosedTap(t *testing.T) {
	w := newWorld(t, "wireguard")
	w.set("ha", home(false))
	count := func() string {
		return strings.TrimSpace(w.Run("ga", "cat", "/sys/class/net/eth0/statistics/rx_packets"))
	}
	noise := func() {
		w.Do("r", func() error { return netstate.Announce("lana", gateway4, mac("02:00:00:00:00:77")) })
		time.Sleep(50 * time.Millisecond)
	}
	for _, active := range []bool{false, true, false} {
		w.flip(active)
		before := count()
		noise()
		if active && count() != before {
			t.Error("something enters the tap while it is closed")
		} else if !active {
			nettest.Eventually(t, "what is on the LAN enters an open tap", 5*time.Second, func() bool { return count() != before })
		}
	}
}

// TestSetIsIdempotent: the kernel is the same after the second call, and not
// even a generation of nftables was spent on it.
func TestSetIsIdempotent(t *testing.T) {
	w := newWorld(t, "vxlan")
	for _, s := range []netstate.State{home(false), home(true)} {
		w.set("ha", s)
		first := w.dump("ha")
		w.set("ha", s)
		if diff := cmp.Diff(first, w.dump("ha")); diff != "" {
			t.Error(diff)
		}
	}
}

// TestShared: two visitors share gateway and sysctls; the first to go takes
// nothing from the other.
func TestShared(t *testing.T) {
	w := newWorld(t, "wireguard")
	w.echo("gb")
	w.set("ha", home(true))
	w.set("hb", abroad())
	other := abroad()
	other.Guest, other.Visiting[0].Addr, other.Visiting[1].Addr = "db", netip.MustParseAddr("10.1.1.6"), netip.MustParseAddr("fd00:1:1::6")
	w.set("hb", other)
	w.Do("hb", func() error { return netstate.Clear("db") })
	w.IP("gb", "neigh flush dev eth0")
	if !w.answers(guest4, long) || !w.answers(guest6, long) {
		t.Error("clearing one guest broke the other")
	}
}

// anycast routes come with IPv6 forwarding.
var anycast = regexp.MustCompile(`anycast .*\n`)

// TestCleanUp finds what a killed agent left, also without the notebook.
func TestCleanUp(t *testing.T) {
	for _, lost := range []string{"true", "nft delete table bridge godwit"} {
		w := newWorld(t, "wireguard")
		before := w.dump("hb")
		w.set("hb", abroad())
		w.Run("hb", "sh", "-c", lost)
		w.Do("hb", func() error {
			removed, err := netstate.CleanUp([]string{"other"})
			if len(removed) == 0 {
				t.Error("nothing removed")
			}
			return err
		})
		after := w.dump("hb")
		if lost != "true" { // sysctls were remembered there, and a static forwarding entry bears no mark
			cut := func(s string) string { s, _, _ = strings.Cut(s, "33:33"); return anycast.ReplaceAllString(s, "") }
			before, after = cut(before), cut(after)
		}
		if diff := cmp.Diff(strings.Split(before, "\n"), strings.Split(after, "\n")); diff != "" {
			t.Errorf("after %q: %s", lost, diff)
		}
		w.Do("hb", func() error {
			removed, err := netstate.CleanUp(nil)
			if len(removed) != 0 {
				t.Errorf("removed once more: %v", removed)
			}
			return err
		})
	}
}

// TestRefusals: wishes that cannot be, and what stays untouched then.
func TestRefusals(t *testing.T) {
	w := newWorld(t, "vxlan")
	w.IP("ha", "route add 10.1.1.9/32 via 100.64.0.1")
	before := w.dumps()["ha"]
	for name, c := range map[string]func(*netstate.State){
		"no guest":       func(s *netstate.State) { s.Guest = "" },
		"no bridge":      func(s *netstate.State) { s.Bridge = "nobridge" },
		"not a bridge":   func(s *netstate.State) { s.Bridge = "up0" },
		"no tunnel":      func(s *netstate.State) { s.Away[0].Tunnel = "notunnel" },
		"twice":          func(s *netstate.State) { s.Away[1] = s.Away[0] },
		"no MAC":         func(s *netstate.State) { s.Away[0].MAC = nil },
		"foreign route":  func(s *netstate.State) { s.Away[0].Addr = netip.MustParseAddr("10.1.1.9") },
		"other family":   func(s *netstate.State) { s.Away[0].Gateway = gateway6 },
		"too long a tap": func(s *netstate.State) { s.Away[0].Tunnel = strings.Repeat("x", 16) },
	} {
		s := home(true)
		c(&s)
		if err := netns.Do(w.Name("ha"), func() error { return netstate.Set(s) }); err == nil {
			t.Errorf("%s: accepted", name)
		} else {
			t.Log(err)
		}
		w.Do("ha", func() error { return netstate.Clear("web") })
	}
	w.like(before, "ha", "after what was refused")
}
