package main

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"godwit/internal/need"
	"godwit/vm/guest"
)

// refusing is an `ip` that refuses one of its commands that change something, of those since n was set to 0: the one
// whose number is in nth.
const refusing = `#!/bin/sh
case " $* " in *" add "*|*" del "*|*" delete "*|*" replace "*|*" set "*|*" flush "*|*" -batch "*)
	n=$(($(cat %[1]s/n) + 1)); echo $n >%[1]s/n
	if [ $n = $(cat %[1]s/nth) ]; then echo refused >&2; exit 1; fi;;
esac
exec %[2]s "$@"
`

// TestScriptsGoOn: whichever command of a guest with the QEMU guest agent is refused once as its old addresses are
// retired, the next try of the handover ends as though none had been, or the first one has. (The helper's:
// TestRetireGoesOn.)
func TestScriptsGoOn(t *testing.T) {
	need.Root(t)
	for _, name := range []string{"qemu-ga", "ss", "unshare"} {
		need.Program(t, name)
	}
	ip, err := exec.LookPath("ip")
	must(t, err)
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "ip"), fmt.Appendf(nil, refusing, dir, ip), 0o755))
	counts := func(n, nth int) {
		for name, value := range map[string]int{"n": n, "nth": nth} {
			must(t, os.WriteFile(filepath.Join(dir, name), []byte(strconv.Itoa(value)), 0o600))
		}
	}
	counts(0, 0)
	const first = "mount --bind %s /usr/local/sbin; exec \"$@\"" // in a guest's PATH
	c, ctx := guestAgent(t, "unshare", "-m", "--propagation", "private", "/bin/sh", "-ec", fmt.Sprintf(first, dir), "sh"), t.Context()
	for keep, old := range map[bool]netip.Prefix{false: oldV4, true: oldV6} {
		p := guest.Retire{Addrs: []netip.Addr{old.Addr()}, MAC: firstMAC, NewMAC: secondMAC, Keep: keep}
		retire := func() (err error) {
			if p.Stay = keep; keep {
				err = c.Retire(ctx, p)
			}
			if p.Stay = false; err == nil {
				err = c.Retire(ctx, p)
			}
			return err
		}
		next := func(t *testing.T) {
			_, err := c.Configure(ctx, configureNext())
			must(t, err)
			must(t, c.MakeMain(ctx, secondMAC))
		}
		var whole string
		for nth, over := 0, false; !over && nth < 100; nth++ { // 0: none is refused
			over = !t.Run(fmt.Sprintf("keep %v, command %d", keep, nth), func(t *testing.T) {
				makeNICs(t)
				first := configureOld()
				first.Addrs = []netip.Prefix{old}
				_, err := c.Configure(ctx, first)
				must(t, err)
				next(t)
				counts(0, nth)
				err = retire()
				reached, rerr := os.ReadFile(filepath.Join(dir, "n"))
				must(t, rerr)
				n, rerr := strconv.Atoi(strings.TrimSpace(string(reached)))
				must(t, rerr)
				counts(0, 0)
				if over = nth > n; err != nil {
					want(t, "a command was refused", nth > 0 && !over, true)
					next(t)
					must(t, retire())
				}
				if now := looks(t); nth == 0 {
					whole = now
				} else {
					want(t, fmt.Sprintf("after %v", err), now, whole)
				}
			}) || over
		}
	}
}

// looks is what the two NICs and their routing are like.
func looks(t *testing.T) string {
	t.Helper()
	const script = `for d in nic0 nic1; do ip -o addr show dev $d scope global | while read -r i n f a r; do echo $n $a; done; ip link show $d | grep -c 'state DOWN' || :; done
ip mptcp endpoint
for f in -4 -6; do ip $f rule; ip $f route show table all | grep -v -e 'table local' -e ^multicast -e fe80 | sort; done`
	out, err := exec.Command("/bin/sh", "-ec", script).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.ReplaceAll(string(out), "linkdown", "")
}
