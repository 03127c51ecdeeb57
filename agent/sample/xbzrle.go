package sample

import (
	"bytes"

	"godwit/transfer/encode"
	"godwit/transfer/pages"
)

// byXbzrle counts what QEMU sends of pages that are as now, and were as before when it sent them last
// (docs/devel/migration: XBZRLE).
func byXbzrle(now, before [][]byte) (sum encode.Counts) {
	for i := range now {
		if !bytes.Equal(now[i], before[i]) {
			sum.In += uint64(len(now[i]))
			sum.Out += uint64(xbzrle(now[i], before[i])) //nolint:gosec // not negative
		}
	}
	return sum
}

// xbzrleHeader is what QEMU sends of such a page before its bytes: where it is, a flag, and their length.
const xbzrleHeader = 8 + 1 + 2

// xbzrle is how many bytes a page takes: runs of bytes that are as before, and of those that are not, each with its
// length, or all of it where that is not less.
func xbzrle(now, before []byte) int {
	out := xbzrleHeader
	for at := 0; at < len(now); {
		same := at
		for same < len(now) && now[same] == before[same] {
			same++
		}
		if same == len(now) {
			break
		}
		other := same
		for other < len(now) && now[other] != before[other] {
			other++
		}
		out += lengthBytes(same-at) + lengthBytes(other-same) + other - same
		at = other
	}
	return min(out, xbzrleHeader+pages.Size)
}

// lengthBytes is what a length takes (ULEB128).
func lengthBytes(n int) int {
	if n < 1<<7 {
		return 1
	}
	return 2
}
