package pages

import (
	"math/bits"
	"unsafe"
)

// Need is how many bytes of memory a store of a guest of so many pages takes at the most, beside its arena: some 92 a page.
func Need(total uint64) uint64 {
	const sets = 2*Classes + 3                                             // wait and bases, zeros, blocked and heldBack
	const hash, order = unsafe.Sizeof(uint64(0)), unsafe.Sizeof(uint64(0)) // of the index, and of post-copy
	perPage := uint64(unsafe.Sizeof(page{}) + hash + order + unsafe.Sizeof(Identity{}))
	return total*perPage + max(uint64(1)<<bits.Len64(total), ways)*uint64(unsafe.Sizeof(uint32(0))) + sets*(total/8+total/256)
}
