package qstream

import (
	"bytes"
	"encoding/binary"
	"strings"
)

// Of each virtio device that knows VIRTIO_F_VERSION_1 the tail has a subsection with the addresses of its rings
// (hw/virtio/virtio.c, vmstate_virtio_virtqueues): be64 of the available ring and be64 of the used one, for each of
// VIRTIO_QUEUE_MAX queues.
const (
	ringsHeader = "\x05\x11virtio/virtqueues\x00\x00\x00\x01"
	ringsQueues = 1024
	ringsBytes  = ringsQueues * 16
)

// Rings calls yield for each ring of the guest's virtio devices, by the guest's addresses, until that returns false.
// QEMU reads there where both rings stand as it loads the device (virtio_load). What is in the devices' state may be
// the guest's own, and looks like a ring then.
func Rings(devices []byte, yield func(avail, used uint64) bool) {
	for {
		at := bytes.Index(devices, []byte(ringsHeader))
		if at < 0 {
			return
		}
		devices = devices[at+len(ringsHeader):]
		if len(devices) < ringsBytes {
			return
		}
		for queue := range ringsQueues {
			avail, used := binary.BigEndian.Uint64(devices[16*queue:]), binary.BigEndian.Uint64(devices[16*queue+8:])
			if avail != 0 && used != 0 && !yield(avail, used) {
				return
			}
		}
	}
}

// At is the page that a PC has at an address: its largest block is its memory, from 0 on, and continues at 4 GiB where
// it does not fit below the devices there. Where a machine was told to have it otherwise, it is another page.
func (p *Prologue) At(address uint64) (page uint64, ok bool) {
	var memory Block
	for _, b := range p.Blocks {
		if b.Length > memory.Length {
			memory = b
		}
	}
	const high = 4 << 30
	below, fits := uint64(3<<30), int64(0xe0000000) // hw/i386/pc_piix.c: below, where there is as much as that
	if strings.Contains(p.Machine, "q35") {
		below, fits = 2<<30, 0xb0000000 // hw/i386/pc_q35.c
	}
	switch {
	case address >= high:
		address = address - high + below
	case address >= below && memory.Length >= fits:
		return 0, false // devices
	}
	page = address / PageSize
	return memory.First + page, page < memory.Pages()
}
