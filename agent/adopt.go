package agent

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"godwit/migration"
	"godwit/netstate/hold"
	"godwit/vm/qemu"
)

// adopt takes a guest under care that something else started. The guest is not
// touched; on error nothing has changed.
func (a *Agent) adopt(ctx context.Context, d Description) (*Guest, error) {
	machine, err := qemu.AttachSocket(ctx, d.QMP, 0, d.Channel)
	if err != nil {
		return nil, &migration.Problem{Code: migration.CodeGuest, Text: fmt.Sprintf("adopt guest %s: %v", d.Name, err)}
	}
	g := &Guest{Machine: machine, Held: Held{Description: d, Number: a.guests.number(), Epoch: 1, Table: 100}}
	g.Held.Dir = a.guestDir(d.Name, "1")
	if err := os.MkdirAll(g.Held.Dir, 0o700); err != nil {
		machine.Close()
		return nil, fmt.Errorf("adopt guest %s: %w", d.Name, err)
	}
	for _, n := range d.NICs {
		g.Held.Taps = append(g.Held.Taps, n.Tap)
		tap, err := hold.Recover(machine.PID(), n.Tap)
		if err != nil {
			a.log.Warn("adopt guest: its tap cannot be read out after a stop", "guest", d.Name, "error", err)
		}
		g.Taps = append(g.Taps, tap)
	}
	if err := a.learn(ctx, g); err != nil {
		g.closeFiles()
		os.RemoveAll(g.Held.Dir) //nolint:errcheck // it was made just now
		return nil, err
	}
	return g, nil
}

// learn asks the guest which addresses it has, and on which NIC.
func (a *Agent) learn(ctx context.Context, g *Guest) error {
	d := g.Held.Description
	g.Held.Addresses = d.Addresses
	for i := range g.Held.Addresses {
		if g.Held.Addresses[i].Home == "" {
			g.Held.Addresses[i].Home = a.config.Host
		}
		if !g.Held.Addresses[i].Gateway.IsValid() {
			g.Held.Addresses[i].Gateway = a.config.Network.gatewayOf(g.Held.Addresses[i].Prefix.Addr().Is4())
		}
	}
	if d.Channel == "" {
		if len(g.Held.Addresses) == 0 {
			return &migration.Problem{Code: migration.CodeGuest, Text: fmt.Sprintf("adopt guest %s: without a guest channel its description must name its addresses", d.Name)}
		}
		return nil
	}
	var err error
	if g.Channel, err = connectChannel(ctx, d.Channel, 10*time.Second); err != nil {
		return &migration.Problem{Code: migration.CodeGuest, Text: fmt.Sprintf("adopt guest %s: no answer on its channel %s: %v", d.Name, d.Channel, err)}
	}
	info, err := g.Channel.Info(ctx)
	if err != nil {
		return &migration.Problem{Code: migration.CodeGuest, Text: fmt.Sprintf("adopt guest %s: %v", d.Name, err)}
	}
	for _, nic := range info.NICs {
		i := slices.IndexFunc(d.NICs, func(n NIC) bool { return strings.EqualFold(n.MAC, nic.MAC) })
		if i < 0 || !nic.Up {
			continue
		}
		for _, p := range nic.Addrs {
			n := a.config.Network
			if len(d.Addresses) > 0 || !n.V4.Contains(p.Addr()) && !n.V6.Contains(p.Addr()) {
				continue
			}
			g.Held.Active = i
			g.Held.Addresses = append(g.Held.Addresses, migration.Address{Prefix: p, Gateway: n.gatewayOf(p.Addr().Is4()), Home: a.config.Host})
		}
	}
	if len(g.Held.Addresses) == 0 {
		return &migration.Problem{Code: migration.CodeGuest, Text: fmt.Sprintf("adopt guest %s: it has no address of this site's subnet; name its addresses in the description", d.Name)}
	}
	return nil
}

// startWaiting starts a guest by its description's own command, waiting for its
// memory. The words {dir}, {qmp}, {channel}, {memory}, {tap0}, {tap1} … of the
// command are replaced; it must make QEMU listen on {qmp}, with -S and -incoming
// defer, and with the taps by name.
func startWaiting(ctx context.Context, g *Guest) (*qemu.Process, error) {
	d := g.Held.Description
	if err := os.MkdirAll(g.Held.Dir, 0o700); err != nil {
		return nil, err
	}
	qmp, channel := filepath.Join(g.Held.Dir, "qmp.sock"), filepath.Join(g.Held.Dir, "guest.sock")
	words := []string{"{dir}", g.Held.Dir, "{qmp}", qmp, "{channel}", channel, "{memory}", fmt.Sprintf("%dM", d.Memory>>20)}
	for i, tap := range g.Held.Taps {
		words = append(words, fmt.Sprintf("{tap%d}", i), tap)
	}
	replace := strings.NewReplacer(words...)
	args := make([]string, len(d.Start))
	for i, w := range d.Start {
		args[i] = replace.Replace(w)
	}
	log, err := os.Create(filepath.Join(g.Held.Dir, "qemu.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(args[0], args[1:]...) //nolint:gosec // it is the operator's command
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start guest %s: %w", d.Name, err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		p, err := qemu.AttachSocket(ctx, qmp, cmd.Process.Pid, channel)
		if err == nil {
			return p, nil
		}
		select {
		case werr := <-done:
			return nil, fmt.Errorf("start guest %s: its command ended (%v); see %s", d.Name, werr, log.Name())
		case <-ctx.Done():
			cmd.Process.Kill() //nolint:errcheck // it may have ended just now
			return nil, fmt.Errorf("start guest %s: no QMP on %s: %w", d.Name, qmp, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (n Network) gatewayOf(v4 bool) netip.Addr {
	if v4 {
		return n.Gateway4
	}
	return n.Gateway6
}
