package qemu

import (
	"bufio"
	"context"
	"errors"
	"iter"
	"strings"

	"godwit/vm/qemu/qmp"
)

// Device is one that was made with -device, or plugged in.
type Device struct {
	Path string // of it in QEMU's object model
	ID   string // "" where it was given none
	Type string // such as virtio-net-pci
}

// Card is a network card as QEMU has it.
type Card struct {
	Path   string // of its device
	MAC    string // that it was started with
	Netdev string // id of what it is connected to
	backend
}

// backend is what a card is connected to.
type backend struct {
	Tap    string // "" where QEMU does not say, such as for one that it inherited
	Queues int    // pairs of them, of a tap
}

// Cards lists the network cards that were made with -device: all of them, or there is an error.
func (p *Process) Cards(ctx context.Context) ([]Card, error) {
	taps, err := p.taps(ctx)
	if err != nil {
		return nil, err
	}
	var cards []Card
	for d, err := range p.devices(ctx) {
		if err != nil {
			return nil, err
		}
		c := Card{Path: d.Path}
		err = p.property(ctx, d.Path, "mac", &c.MAC)
		if err == nil {
			err = p.property(ctx, d.Path, "netdev", &c.Netdev)
		}
		var without *qmp.Error
		if errors.As(err, &without) {
			continue // not a card
		}
		if err != nil {
			return nil, err
		}
		c.backend = taps[c.Netdev]
		cards = append(cards, c)
	}
	return cards, nil
}

// anyHas says whether a device has a property, and it is on.
func (p *Process) anyHas(ctx context.Context, property string) (bool, error) {
	for d, err := range p.devices(ctx) {
		if err != nil {
			return false, err
		}
		var on bool
		err = p.property(ctx, d.Path, property, &on)
		var without *qmp.Error
		if errors.As(err, &without) {
			continue // another kind of device
		}
		if err != nil || on {
			return on, err
		}
	}
	return false, nil
}

// Devices lists what was made with -device, or plugged in, and what QEMU makes likewise (-drive if=virtio, -virtfs).
func (p *Process) Devices(ctx context.Context) ([]Device, error) {
	all := []Device{}
	for d, err := range p.devices(ctx) {
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, nil
}

// Where QEMU keeps those that have an id, by it, and those that have none.
const (
	named     = "/machine/peripheral"
	anonymous = "/machine/peripheral-anon"
)

// devices is Devices, one by one; an error is the last.
func (p *Process) devices(ctx context.Context) iter.Seq2[Device, error] {
	type entry struct {
		Name string `json:"name"`
		Type string `json:"type"`
	}
	return func(yield func(Device, error) bool) {
		for _, folder := range []string{named, anonymous} {
			var devices []entry
			if err := p.qmp.Do(ctx, "qom-list", map[string]string{"path": folder}, &devices); err != nil {
				yield(Device{}, err)
				return
			}
			for _, e := range devices {
				kind, is := strings.CutPrefix(e.Type, "child<")
				d := Device{Path: folder + "/" + e.Name, ID: e.Name, Type: strings.TrimSuffix(kind, ">")}
				if folder == anonymous {
					d.ID = ""
				}
				if is && !yield(d, nil) {
					return
				}
			}
		}
	}
}

// taps reads the taps by the id of their netdev. Only QEMU's monitor for people tells, in
// lines such as `net0: index=0,type=tap,ifname=tap0,script=no`, one for each pair of queues.
func (p *Process) taps(ctx context.Context) (map[string]backend, error) {
	var text string
	if err := p.qmp.Do(ctx, "human-monitor-command", map[string]string{"command-line": "info network"}, &text); err != nil {
		return nil, err
	}
	return readTaps(text), nil
}

func readTaps(text string) map[string]backend {
	taps := map[string]backend{}
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		id, what, ok := strings.Cut(strings.TrimLeft(lines.Text(), ` \`), ": ")
		if !ok || !strings.Contains(what, "type=tap,") {
			continue
		}
		tap := taps[id]
		tap.Queues++
		for _, word := range strings.Split(what, ",") {
			if name, ok := strings.CutPrefix(word, "ifname="); ok {
				tap.Tap = strings.TrimSpace(name)
			}
		}
		taps[id] = tap
	}
	return taps
}
