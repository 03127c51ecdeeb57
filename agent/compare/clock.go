package compare

import (
	"bytes"
	"encoding/binary"

	"godwit/vm/qemu"
)

// onlyTime says whether a page is the source's but for the time. Where the source's QEMU has ended meanwhile, nobody
// can say what differs, and it is taken for that.
func onlyTime(there, here *qemu.Memory, block string, page int) bool {
	was, err := there.Page(block, page)
	if err != nil {
		return true
	}
	now, err := here.Page(block, page)
	return err == nil && wroteTime(was, now)
}

// wroteTime says whether a page differs from what it was in a struct pvclock_wall_clock only, of which KVM has made a
// newer version (kvm_write_wall_clock in Linux's arch/x86/kvm/x86.c): its version, which is odd while it is written,
// seconds and nanoseconds. Each vCPU that is loaded makes one. It is aligned.
func wroteTime(was, now []byte) bool {
	const size = 12
	at := 0
	for at < len(now) && was[at] == now[at] {
		at++
	}
	at -= at % 4 // of 128 vCPUs the version's first byte is as it was
	if at+size > len(now) || !bytes.Equal(was[at+size:], now[at+size:]) {
		return false
	}
	word := func(page []byte, n int) uint32 { return binary.LittleEndian.Uint32(page[at+4*n:]) }
	versions := word(now, 0) - word(was, 0)
	return word(was, 0)%2 == 0 && versions%2 == 0 && versions < 1<<16 && word(was, 2) != word(now, 2) && word(was, 2) < 1e9 && word(now, 2) < 1e9
}
