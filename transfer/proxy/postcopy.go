package proxy

import (
	"errors"
	"fmt"

	"godwit/transfer/qstream"
	"godwit/transfer/wire"
)

// The destination's part of post-copy: QEMU has the devices and a list of what is missing,
// and may run. It asks for what the guest touches; we ask the Source, whose pages of that
// come before all others.

// discard takes a part of the list.
func (d *Destination) discard(body []byte) error {
	runs, err := wire.ParseDiscard(body)
	if err != nil {
		return err
	}
	if !d.config.Postcopy || d.writer == nil || d.absent != nil || d.end != nil || d.opaque {
		return errors.New("pages discarded out of place")
	}
	total := d.blocks.Pages()
	for _, r := range runs {
		if r.Count > total || r.First > total-r.Count {
			return fmt.Errorf("discard %d pages from %d of %d", r.Count, r.First, total)
		}
	}
	if uint64(len(d.runs)+len(runs)) > total { //nolint:gosec // lengths
		return errors.New("more is discarded than there is")
	}
	d.runs = append(d.runs, runs...)
	return nil
}

// handOver gives QEMU its devices: from now on the guest may run.
func (d *Destination) handOver(body []byte) error {
	start, err := wire.ParseRun(body)
	if err != nil {
		return err
	}
	if len(d.runs) == 0 || d.absent != nil || len(d.missing) > 0 {
		return errors.New("a guest to run, out of place")
	}
	tail, err := d.unpackTail(start.Tail)
	if err != nil {
		return err
	}
	d.absent = map[uint64]bool{}
	for _, r := range d.runs {
		if err := d.writer.Discard(r.First, r.Count); err != nil {
			return d.toQEMU(err)
		}
		for n := range r.Count {
			d.absent[r.First+n] = true
		}
	}
	if err := d.writer.Run(tail[:start.Devices]); err != nil {
		return d.toQEMU(err)
	}
	close(d.handed)
	return nil
}

// goOn follows a frame after that, and ends the stream with the last page.
func (d *Destination) goOn() error {
	if len(d.absent) > 0 {
		return d.toQEMU(d.writer.EndPart())
	}
	d.written = true // before QEMU can close
	return d.toQEMU(d.writer.Finish())
}

// fault asks the Source for pages that the guest waits for.
func (d *Destination) fault(m qstream.Message) error {
	first, count, err := d.blocks.Range(m.Block, m.Offset, m.Length)
	if err != nil {
		return qemuError("return path: %w", err)
	}
	var wanted []uint64
	d.mu.Lock()
	for n := range count {
		if d.absent[first+n] && len(wanted) < wire.MaxPages {
			wanted = append(wanted, first+n)
		}
	}
	d.mu.Unlock()
	if len(wanted) == 0 {
		return nil // it is on its way into QEMU
	}
	return d.receiver.Control(d.ctx, wire.TopicFault, wire.AppendFault(nil, wanted), true)
}
