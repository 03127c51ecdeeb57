package proxy

import (
	"errors"
	"fmt"

	"github.com/klauspost/compress/zstd"

	"godwit/transfer/wire"
)

// complete ends QEMU's stream, if everything is here.
func (d *Destination) complete() error {
	if d.end == nil || !d.whole(d.end.Last) || len(d.missing) > 0 || d.written {
		return nil
	}
	if d.writer == nil {
		return errors.New("an end before the prologue")
	}
	tail, err := d.unpackTail(d.end.Tail)
	if err != nil {
		return err
	}
	for _, c := range d.commands {
		if err := d.writer.Command(c.Code, c.Data); err != nil {
			return d.toQEMU(err)
		}
	}
	if err := d.writer.End(); err != nil {
		return d.toQEMU(err)
	}
	d.written = true // before QEMU can close
	return d.toQEMU(d.writer.Tail(tail))
}

// whole says whether the frames that were taken are those up to last. Where a later one is among them, as pages that were
// missed went again in it and it came first, as many may be here while one is not: another End follows.
func (d *Destination) whole(last uint64) bool { return d.frames == last && d.highest <= last }

func (d *Destination) unpackTail(size uint32) ([]byte, error) {
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(wire.MaxTail))
	if err != nil {
		return nil, err
	}
	defer dec.Close()
	tail, err := dec.DecodeAll(d.tail, nil)
	if err != nil {
		return nil, fmt.Errorf("tail: %w", err)
	}
	if len(tail) != int(size) {
		return nil, fmt.Errorf("tail of %d bytes, not %d", len(tail), size)
	}
	return tail, nil
}
