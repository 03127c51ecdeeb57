package netstate_test

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"

	"godwit/netstate"
	"godwit/netstate/internal/nettest"
	"godwit/netstate/netns"
)

// Firewalls of hosts that forward nothing by default, as people write them and as
// iptables-nft does (Docker sets its policy to drop).
const (
	nativeFirewall = `table inet fw {
	chain seen { counter; }
	chain clamp { type filter hook forward priority mangle; policy accept; tcp flags syn counter; }
	chain f { type filter hook forward priority filter; policy drop; jump seen; ct state established,related accept; iifname "br-guest" ct state new accept; }
}`
	iptablesFirewall = `table ip filter { chain FORWARD { type filter hook forward priority filter; policy drop; ct state established,related counter accept; iifname "br-guest" ct state new counter accept; }; }
table ip6 filter { chain FORWARD { type filter hook forward priority filter; policy drop; ct state established,related counter accept; iifname "br-guest" ct state new counter accept; }; }`
	// The policy accepts, a chain that the rules lead to does not.
	rejectingFirewall = `table inet fw {
	chain last { meta l4proto != icmp counter reject; }
	chain f { type filter hook forward priority filter; policy accept; ct state vmap { established : accept, related : accept }; goto last; }
}`
)

// TestDefaultDrop: a connection through the middle of which a guest moves lives on where a
// host's firewall forwards only what it saw begin, at its home and where the guest lives now; also
// when the firewall is loaded again, by the next Set. The firewall's own rules stay as they
// were, and after the detour nothing else is there.
func TestDefaultDrop(t *testing.T) {
	for name, rules := range map[string]string{"native": nativeFirewall, "iptables": iptablesFirewall, "rejecting": rejectingFirewall} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "vxlan")
			w.IP("ga", "link set dev eth0 down")
			states := map[string]netstate.State{"ha": home(true), "hb": abroad()}
			w.set("hb", abroad())
			w.set("ha", home(true))
			for _, h := range []string{"ha", "hb"} {
				t.Run(h, func(t *testing.T) {
					bare := w.rules(h)
					for _, addr := range []netip.Addr{guest4, guest6} {
						conn := w.talk(addr)
						w.load(h, rules)
						if echoes(conn, short) {
							t.Fatalf("%s: the firewall lets it through anyway, which shows nothing", addr)
						}
						w.stands(h, states[h], false)
						w.set(h, states[h])
						w.stands(h, states[h], true)
						if !echoes(conn, 10*time.Second) {
							t.Fatalf("%s: a connection ends at the firewall:\n%s", addr, w.Run(h, "nft", "list", "ruleset"))
						}
						w.load(h, "flush ruleset\n"+rules)
						w.stands(h, states[h], false)
						if echoes(conn, short) {
							t.Errorf("%s: it goes on where the whole rule set was loaded anew, which shows nothing", addr)
						}
						w.set(h, states[h])
						w.stands(h, states[h], true)
						if !echoes(conn, 10*time.Second) {
							t.Fatalf("%s: Set did not open the firewall again", addr)
						}
						first := w.rules(h)
						w.set(h, states[h])
						if diff := cmp.Diff(first, w.rules(h)); diff != "" {
							t.Errorf("%s: Set again: %s", addr, diff)
						}
						for _, table := range tablesOf(rules) {
							w.Run(h, "nft", "delete", "table", table[0], table[1])
						}
						if diff := cmp.Diff(strings.Split(bare, "\n"), strings.Split(w.rules(h), "\n")); diff != "" {
							t.Errorf("%s: beside the firewall: %s", addr, diff)
						}
					}
				})
			}
		})
	}
}

// TestFirewallIsLeftAsItWas: what the detour put into a firewall goes with it, also where the
// notebook was lost with the whole rule set's reload, and what is the firewall's stays.
func TestFirewallIsLeftAsItWas(t *testing.T) {
	w := newWorld(t, "vxlan")
	for _, rules := range []string{nativeFirewall, iptablesFirewall} {
		w.load("hb", rules)
	}
	before := w.dump("hb")
	for _, c := range []struct {
		name string
		end  func() error
	}{
		{"Clear", func() error { return netstate.Clear("web") }},
		{"CleanUp", func() error {
			if _, err := netstate.CleanUp([]string{"web"}); err != nil {
				return err
			}
			inv, err := netstate.Found()
			if len(inv.Stray) != 0 || err != nil {
				t.Errorf("stray while the guest is here: %q, %v", inv.Stray, err)
			}
			_, err = netstate.CleanUp(nil)
			return err
		}},
		{"RemoveStray", func() error {
			w.Run("hb", "nft", "delete table bridge godwit")
			inv, err := netstate.Found()
			for _, s := range inv.Stray {
				if err := netstate.RemoveStray(s); err != nil {
					return err
				}
			}
			if !strings.Contains(strings.Join(inv.Stray, "\n"), "opening from 10.1.1.5") {
				t.Errorf("stray: %q, want an opening of the firewall among them", inv.Stray)
			}
			return err
		}},
	} {
		w.set("hb", abroad())
		ruleset := w.Run("hb", "nft", "list ruleset")
		if n := strings.Count(ruleset, `comment "godwit `); n != 8 {
			t.Errorf("%s: %d rules carry our mark, want 8 (two of each address in each firewall):\n%s", c.name, n, ruleset)
		}
		if chain, _, _ := strings.Cut(ruleset[strings.Index(ruleset, "chain clamp"):], "}"); strings.Contains(chain, "godwit") {
			t.Errorf("%s: a chain that drops nothing was opened: %s", c.name, chain)
		}
		w.Do("hb", c.end)
		after := w.dump("hb")
		if c.name == "RemoveStray" { // the sysctls were remembered in the notebook
			cut := func(s string) string { s, _, _ = strings.Cut(s, "default via"); return s }
			before, after = cut(before), cut(after)
		}
		if diff := cmp.Diff(strings.Split(before, "\n"), strings.Split(after, "\n")); diff != "" {
			t.Errorf("after %s: %s", c.name, diff)
		}
	}
}

// TestRestoredByIptables: what iptables saved and loaded again of ours is known by the comment
// still, which iptables keeps in its own way.
func TestRestoredByIptables(t *testing.T) {
	w := newWorld(t, "vxlan")
	w.load("hb", iptablesFirewall)
	before := w.rules("hb")
	restored := append([]byte("godwit to=10.1.1.5 out=br-guest"), make([]byte, 256)...)[:256]
	w.Do("hb", func() error {
		c, err := nftables.New()
		if err != nil {
			return err
		}
		info := xt.Unknown(restored)
		c.InsertRule(&nftables.Rule{Table: &nftables.Table{Family: nftables.TableFamilyIPv4, Name: "filter"}, Chain: &nftables.Chain{Name: "FORWARD"},
			Exprs: []expr.Any{&expr.Match{Name: "comment", Info: &info}, &expr.Verdict{Kind: expr.VerdictAccept}}})
		if c.Flush() != nil {
			t.Skip("the kernel has no comments of iptables")
		}
		return nil
	})
	w.Do("hb", func() error {
		inv, err := netstate.Found()
		if len(inv.Stray) != 1 || inv.Stray[0] != "opening to 10.1.1.5 out br-guest" {
			t.Errorf("stray: %q", inv.Stray)
		}
		return err
	})
	w.Do("hb", func() error { _, err := netstate.CleanUp(nil); return err })
	if diff := cmp.Diff(before, w.rules("hb")); diff != "" {
		t.Error(diff)
	}
}

// TestFlipThroughFirewall: flipping to and fro loses nothing where firewalls forward nothing by
// default, also bridged packets where the kernel shows them those (br_netfilter).
func TestFlipThroughFirewall(t *testing.T) {
	w := newWorld(t, "vxlan")
	a, b := w.echo("ga"), w.echo("gb")
	for _, h := range []string{"ha", "hb"} {
		w.load(h, nativeFirewall+"\nadd rule inet fw f meta l4proto ipv6-icmp accept")
	}
	if !w.answers(guest4, long) || !w.answers(guest6, long) {
		t.Fatal("the guest does not answer at home")
	}
	w.set("hb", abroad())
	w.set("ha", home(false))
	stream4, stream6 := w.stream(guest4, 1), w.stream(guest6, 1<<24)
	for i := range 10 {
		goOn(stream4, stream6)
		w.flip(i%2 == 0)
	}
	stream4.end(t, a, b)
	stream6.end(t, a, b)
}

// TestOwnedFirewall: a chain that nobody but its owner may write in, and that may drop, is
// named beforehand, unless its owner says that it has a rule for us; Set does not leave it at that.
func TestOwnedFirewall(t *testing.T) {
	w := newWorld(t, "vxlan")
	owner := exec.Command("ip", "netns", "exec", w.Name("hb"), "nft", "-i")
	in, err := owner.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); owner.Wait() }) //nolint:errcheck // what it says of its end is nothing to us
	says := func(line, then string) {
		t.Helper()
		fmt.Fprintln(in, line)
		nettest.Eventually(t, then, 5*time.Second, func() bool { return strings.Contains(w.Run("hb", "nft", "list ruleset"), then) })
	}
	barred := func(when string, want ...string) {
		t.Helper()
		var err error
		w.Do("hb", func() error { err = netstate.Barred("br-guest"); return nil })
		if (err == nil) != (len(want) == 0) {
			t.Errorf("%s: barred: %v, want %q", when, err, want)
		}
		for _, part := range want {
			if err != nil && !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q, want %q in it", when, err, part)
			}
		}
	}
	barred("without a firewall")
	says(`add table inet own { flags owner; }`, "table inet own")
	says(`add chain inet own f { type filter hook forward priority 0; policy accept; }`, "chain f")
	barred("where nothing is dropped")
	says(`add rule inet own f counter drop`, "drop")
	text := []string{"table inet own, chain f", `iifname "br-guest" accept comment "godwit"`}
	barred("owned", text...)
	err = netns.Do(w.Name("hb"), func() error { return netstate.Set(abroad()) })
	if err == nil || !strings.Contains(err.Error(), text[0]) {
		t.Errorf("Set where the firewall cannot be opened: %v, want %q in it", err, text[0])
	}
	says(`insert rule inet own f iifname "br-guest" accept comment "godwit"`, `"br-guest" accept comment "godwit"`)
	barred("with a rule for us")
	w.set("hb", abroad())
	w.stands("hb", abroad(), true)
}

// stands checks what Stands says of a host's state.
func (w *world) stands(h string, s netstate.State, want bool) {
	w.t.Helper()
	w.Do(h, func() error {
		ok, err := netstate.Stands(s)
		if ok != want {
			w.t.Errorf("%s: state stands: %v, want %v", h, ok, want)
		}
		return err
	})
}

// load puts rules into a host's nftables, in one transaction.
func (w *world) load(h, rules string) {
	w.t.Helper()
	w.Run(h, "nft", rules)
}

// rules are a host's nftables without what changes with each packet, and what sysctls were
// before, which is forgotten with a rule set that somebody flushes.
func (w *world) rules(h string) string {
	return w.Run(h, "sh", "-c", `nft -t list ruleset | sed -E 's,packets [0-9]+ bytes [0-9]+,,' | grep -v 'comment "sysctl'`)
}

// tablesOf lists family and name of each table that rules make.
func tablesOf(rules string) [][2]string {
	var out [][2]string
	for _, line := range strings.Split(rules, "\n") {
		var t [2]string
		if n, _ := fmt.Sscanf(line, "table %s %s", &t[0], &t[1]); n == 2 {
			out = append(out, t)
		}
	}
	return out
}
