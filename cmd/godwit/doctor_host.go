package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"godwit/agent/config"
	"godwit/agent/peer"
	"godwit/internal/clock"
	"godwit/netstate"
	"godwit/netstate/meter"
)

// kernelHere looks at what agents and labs need of the kernel. Devices are opened and programs
// loaded, and closed again; nothing is made that has a name.
func kernelHere() []finding {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return []finding{lack("kernel", err.Error())}
	}
	release := unix.ByteSliceToString(name.Release[:])
	out := []finding{kernelOf(release), tun("/dev/net/tun")}
	if geteuid() != 0 {
		out = append(out, note("nftables, bpf", "not looked at: only root can"))
	} else {
		out = append(out, tried("nftables", "answers", "load the module nf_tables", func() error {
			_, err := netstate.Generation()
			return err
		}), tried("bpf", "counts on devices", "a kernel with BPF is needed, for the agent to count what uplinks carry", tryMeter))
	}
	return append(out, wireGuard("/", release))
}

// tried is what trying shows.
func tried(what, well, cure string, try func() error) finding {
	if err := try(); err != nil {
		return lack(what, err.Error()+"; "+cure)
	}
	return fine(what, well)
}

// tryMeter counts on the one device that every host has, for no time.
func tryMeter() error {
	m, err := meter.Open("lo")
	if err != nil {
		return err
	}
	return m.Close()
}

// kernelOf says whether a kernel of that release is new enough.
func kernelOf(release string) finding {
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return note("kernel", fmt.Sprintf("%s: 5.12 or newer is needed, and this is no number", release))
	}
	if major < 5 || major == 5 && minor < 12 {
		return lack("kernel", release+" is too old; 5.12 or newer is needed")
	}
	return fine("kernel", release)
}

// tun says whether taps can be made, by opening what they are made with.
func tun(path string) finding {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err == nil {
		f.Close()
	}
	return tunOf(path, err)
}

// tunOf is what comes of opening it.
func tunOf(path string, err error) finding {
	switch {
	case errors.Is(err, os.ErrPermission) && geteuid() != 0:
		return note("tun", "not looked at: only root can")
	case err != nil:
		return lack("tun", err.Error()+"; load the module tun")
	}
	return fine("tun", path+" opens")
}

// wireGuard looks for the kernel's where it is loaded, built in or to be loaded. Without it the
// tunnel runs in user space: slower, and no lack.
func wireGuard(root, release string) finding {
	if _, err := os.Stat(filepath.Join(root, "sys/module/wireguard")); err == nil {
		return fine("wireguard", "in the kernel")
	}
	for _, list := range []string{"modules.builtin", "modules.dep"} {
		text, err := os.ReadFile(filepath.Join(root, "lib/modules", release, list))
		if err == nil && strings.Contains(string(text), "/wireguard.ko") {
			return fine("wireguard", "the kernel has it")
		}
	}
	return note("wireguard", "not found in the kernel; tunnels run in user space, with more work for the processor")
}

// configured looks at what the agent's configuration says of this host.
func configured(ctx context.Context, c *config.Config) []finding {
	out := network(ctx, c.Network)
	for _, u := range c.Uplinks {
		out = append(out, uplink(u))
	}
	out = append(out, directories(c)...)
	for _, missing := range c.Missing() {
		out = append(out, lack("configuration", missing))
	}
	for _, slow := range c.Slow() {
		out = append(out, note("configuration", slow))
	}
	papers := certificate(c, clock.Now())
	return slices.Concat(out, []finding{papers}, peers(ctx, c, papers))
}

// uplink says whether this host has the uplink's device and address.
func uplink(u config.Uplink) finding {
	what := "uplink " + u.Name
	if err := u.Check(); err != nil {
		return lack(what, err.Error())
	}
	return fine(what, strings.TrimSpace(u.Device+" "+u.Address.String()))
}

// certificate says whether others would take this host for what it is.
func certificate(c *config.Config, now time.Time) finding {
	id, err := peer.LoadIdentity(c.TLS.CA, c.TLS.Cert, c.TLS.Key)
	if err != nil {
		return lack("certificate", err.Error())
	}
	until := id.Expires().UTC().Format(time.DateOnly)
	err = id.Check(now)
	switch {
	case id.Host() != c.Host:
		return lack("certificate", fmt.Sprintf("%s is host %q's, and the configuration is for host %s; give it the certificate of %s", c.TLS.Cert, id.Host(), c.Host, c.Host))
	case errors.As(err, new(peer.Untimely)):
		return lack("certificate", fmt.Sprintf("%s: %v; %s", c.TLS.Cert, err, peer.CureOf(err)))
	case err != nil:
		return lack("certificate", fmt.Sprintf("%s: other hosts do not believe it: %v; %s", c.TLS.Cert, err, peer.CureOf(err)))
	case id.Expires().Sub(now) < peer.RenewBefore:
		return note("certificate", fmt.Sprintf("%s is good until %s; make the fleet's anew before (godwit init)", c.TLS.Cert, until))
	}
	return fine("certificate", fmt.Sprintf("of host %s, good until %s", c.Host, until))
}
