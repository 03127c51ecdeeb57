package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"godwit/cmd/guest/precedence"
	"godwit/netstate/mptcp"
	"godwit/vm/guest"
)

// serveArgument makes this program the helper of an ordinary guest: see docs/guest.md.
const serveArgument = "serve"

const helperUsage = `godwit-guest serve [--port NAME] [--leave-settings] [--lab]

Serves Godwit's guest channel on a virtio-serial port of this guest, as root: sets
the addresses that its host names, and waits for MPTCP connections to follow.

  godwit-guest serve
`

// helper is the program of a guest that has a first process of its own.
func helper(args []string) error {
	flags := flag.NewFlagSet(serveArgument, flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprint(flags.Output(), helperUsage); flags.PrintDefaults() }
	name := flags.String("port", guest.PortName, "the virtio-serial port's name")
	leave := flags.Bool("leave-settings", false, "change no setting of MPTCP or of reverse-path filters")
	lab := flags.Bool("lab", false, "also serve the lab's traffic and workloads, and let the host run commands here")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return errAsked // and the flags have said it
	}
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("%w: unknown word %q; see --help", errAsked, flags.Arg(0))
	case os.Geteuid() != 0:
		return fmt.Errorf("%w: run it as root: it sets addresses and routes", errAsked)
	}
	keepSmall()
	new(precedence.Threads).Reset()
	if !*leave {
		adjust()
	}
	children := &family{}
	if err := first(); err != nil {
		say("%v", err)
	}
	node := newNode(children)
	node.leave = *leave
	methods := node.handover()
	if *lab {
		if err := serveLab(children); err != nil {
			return err
		}
		methods = node.all()
	}
	say("serving %s", *name)
	node.serve(context.Background(), *name, methods)
	return nil
}

// settingsNeeded are those without which connections cannot follow, or not soon:
// a lost announcement is repeated after two minutes by default, and a NIC that answers
// for the other's address leaves the LAN with an entry that is dead after the move.
var settingsNeeded = map[string]string{
	"net/mptcp/enabled":              "1",
	"net/mptcp/add_addr_timeout":     "1",
	"net/mptcp/blackhole_timeout":    "0",
	"net/mptcp/stale_loss_cnt":       "1",
	"net/ipv4/conf/all/arp_ignore":   "1",
	"net/ipv4/conf/all/arp_announce": "2",
}

// strictFilter are the settings by which packets are refused that come in by another NIC
// than answers would leave by: as happens while both have addresses. The higher of a NIC's
// and that of all counts; 1 is strict, 2 is not.
const strictFilter = "/proc/sys/net/ipv4/conf/*/rp_filter"

// fewestSubflows is the kernel's limit below which a connection has no room for a
// subflow on the next address beside those that it has.
const fewestSubflows = 8

// adjust makes room for what a move needs. What it cannot set it says, and goes on:
// the host is told of what there is (info), and without MPTCP plain TCP is served.
func adjust() {
	for key, value := range settingsNeeded {
		err := os.WriteFile(filepath.Join("/proc/sys", key), []byte(value), 0o644)
		if err != nil && !os.IsNotExist(err) {
			say("set %s: %v", strings.ReplaceAll(key, "/", "."), err)
		}
	}
	if err := loosen(); err != nil {
		say("set rp_filter: %v", err)
	}
	limits, err := mptcp.ReadLimits()
	if err == nil && limits.Subflows < fewestSubflows {
		err = mptcp.SetLimits(fewestSubflows, limits.AddAddrAccepted)
	}
	if err != nil {
		say("%v", err)
	}
}

// loosen makes the filter a loose one where it is strict for some NIC, or for those to come.
func loosen() error {
	settings, err := filepath.Glob(strictFilter)
	if err != nil {
		return err
	}
	for _, path := range settings {
		if now, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(now)) == "1" {
			return os.WriteFile(strings.Replace(strictFilter, "*", "all", 1), []byte("2"), 0o644)
		}
	}
	return nil
}

// serveLab serves the lab's traffic and tunes as the image tiny does, when the system
// has finished starting.
func serveLab(children *family) error {
	tune()
	if err := mptcp.SetLimits(8, 8); err != nil {
		say("%v", err)
	}
	startServices(children)
	startIperf(children)
	// Its exit status says whether a unit failed, which is no matter here.
	command := exec.Command("systemctl", "is-system-running", "--wait")
	if state, err := command.Output(); len(state) > 0 {
		say("the system is %s", strings.TrimSpace(string(state)))
	} else {
		say("wait for the system: %v", err)
	}
	return nil
}
