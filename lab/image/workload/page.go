package workload

import (
	"encoding/binary"
	"math/bits"
)

// A page of a workload proves by itself what it is. Its layout, little-endian:
//
//	0  u32 magic
//	4  u32 area, 8 u32 number, 12 u32 version
//	16 u64 checksum over the 16 bytes before and everything after it
//	24 the content
//
// A page that was lost, mixed up with another, or taken from an older version can
// so be told from the one that was written last.
const (
	pageMagic   = 0x6b775447 // "GTwk"
	contentFrom = 24
)

// Random is a small generator (splitmix64): fast also in an emulated guest.
type Random uint64

// Next returns 64 fresh bits.
func (r *Random) Next() uint64 {
	*r += 0x9e3779b97f4a7c15
	z := uint64(*r)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Below returns a number in [0, n).
func (r *Random) Below(n uint32) uint32 {
	hi, _ := bits.Mul64(r.Next(), uint64(n))
	return uint32(hi)
}

// FillPage writes a whole page: its header, and fresh content from r.
func FillPage(page []byte, area, number, version uint32, text bool, r *Random) {
	page = page[:PageSize]
	content := page[contentFrom:]
	if text {
		fillText(content, r)
	} else {
		for i := 0; i < len(content); i += 8 {
			binary.LittleEndian.PutUint64(content[i:], r.Next())
		}
	}
	binary.LittleEndian.PutUint32(page[0:], pageMagic)
	binary.LittleEndian.PutUint32(page[4:], area)
	binary.LittleEndian.PutUint32(page[8:], number)
	binary.LittleEndian.PutUint32(page[12:], version)
	binary.LittleEndian.PutUint64(page[16:], checksum(page))
}

// TouchPage makes the next version of a page that FillPage wrote: one byte of the content is
// another, and the header's version and checksum.
func TouchPage(page []byte, version uint32, r *Random) {
	page = page[:PageSize]
	page[contentFrom+int(r.Below(PageSize-contentFrom))] ^= byte(1 + r.Below(255))
	binary.LittleEndian.PutUint32(page[12:], version)
	binary.LittleEndian.PutUint64(page[16:], checksum(page))
}

// CheckPage says whether page is exactly what FillPage (or TouchPage) wrote for area, number and version.
func CheckPage(page []byte, area, number, version uint32) bool {
	page = page[:PageSize]
	return binary.LittleEndian.Uint32(page[0:]) == pageMagic &&
		binary.LittleEndian.Uint32(page[4:]) == area &&
		binary.LittleEndian.Uint32(page[8:]) == number &&
		binary.LittleEndian.Uint32(page[12:]) == version &&
		binary.LittleEndian.Uint64(page[16:]) == checksum(page)
}

// checksum folds the page without the checksum's own eight bytes.
func checksum(page []byte) uint64 {
	h := uint64(0x2545f4914f6cdd1d)
	for i := 0; i < PageSize; i += 8 {
		if i == 16 {
			continue
		}
		h = (bits.RotateLeft64(h, 23) ^ binary.LittleEndian.Uint64(page[i:])) * 0x9fb21c651e98df25
	}
	return h ^ h>>32
}

// words is the dictionary of text pages. Its size and the length of its words
// decide how far zstd shrinks the text: to a third at level 1.
var words = func() [wordCount][8]byte {
	var all [wordCount][8]byte
	r := Random(1)
	for i := range all {
		bits := r.Next()
		for j := range wordLength {
			all[i][j] = 'a' + byte(bits%26)
			bits /= 26
		}
		all[i][wordLength] = ' '
	}
	return all
}()

const (
	wordCount  = 1792
	wordLength = 7
)

func fillText(content []byte, r *Random) {
	for i := 0; i < len(content); {
		bits := r.Next()
		for range 4 {
			i += copy(content[i:], words[bits%wordCount][:])
			bits >>= 16
		}
	}
}
