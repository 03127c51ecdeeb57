package qstream

import (
	"fmt"
	"slices"
)

// PageSize is the size of a page in bytes: the target's, on x86.
const PageSize = 1 << pageBits

const pageBits = 12

const (
	// MaxBlocks bounds the blocks of a guest. A device has a few at most.
	MaxBlocks = 4096
	// MaxMemory bounds the sum of the blocks' lengths, in bytes: 64 TiB.
	MaxMemory = 1 << 46
	// maxName is what a length of one byte allows.
	maxName = 255
)

// Block is one of QEMU's RAM blocks.
type Block struct {
	Name   string `json:"name"`   // 1 to 255 bytes, unique
	Length int64  `json:"length"` // bytes, a multiple of PageSize, more than 0
	// PageSize is that of the memory behind the block, in bytes, where the stream says it;
	// 0 where it does not. It is there only after POSTCOPY_ADVISE, for huge pages.
	PageSize int64 `json:"page_size,omitempty"`
	// First is the number of the block's first page. Layout sets it.
	First uint64 `json:"first"`
}

// Pages is the number of the block's pages.
func (b Block) Pages() uint64 { return uint64(b.Length) / PageSize }

// Blocks are all blocks of a guest, in the stream's order, laid end to end.
type Blocks []Block

// Layout checks blocks and sets where each begins. The result shares nothing with list.
func Layout(list []Block) (Blocks, error) {
	if len(list) > MaxBlocks {
		return nil, fmt.Errorf("%d blocks: at most %d", len(list), MaxBlocks)
	}
	blocks := slices.Clone(list)
	names := make(map[string]bool, len(list))
	var total int64
	for i := range blocks {
		b := &blocks[i]
		switch {
		case b.Name == "" || len(b.Name) > maxName:
			return nil, fmt.Errorf("block %d: a name of %d bytes, not 1 to %d", i, len(b.Name), maxName)
		case names[b.Name]:
			return nil, fmt.Errorf("block %q: twice", b.Name)
		case b.Length <= 0 || b.Length%PageSize != 0 || b.Length > MaxMemory-total:
			return nil, fmt.Errorf("block %q: length %d is not of whole pages, or too much", b.Name, b.Length)
		case b.PageSize < 0 || b.PageSize&(b.PageSize-1) != 0 || b.PageSize != 0 && b.PageSize < PageSize:
			return nil, fmt.Errorf("block %q: page size %d", b.Name, b.PageSize)
		}
		names[b.Name] = true
		b.First = uint64(total) / PageSize
		total += b.Length
	}
	return blocks, nil
}

// Pages is the number of all pages; their numbers are less.
func (bs Blocks) Pages() uint64 {
	if len(bs) == 0 {
		return 0
	}
	last := bs[len(bs)-1]
	return last.First + last.Pages()
}

// Find returns which block holds a page, by its index, and the page's offset there in
// bytes. ok is false where there is no such page.
func (bs Blocks) Find(page uint64) (block int, offset int64, ok bool) {
	if page >= bs.Pages() {
		return 0, 0, false
	}
	i, found := slices.BinarySearchFunc(bs, page, func(b Block, page uint64) int {
		switch {
		case b.First < page:
			return -1
		case b.First > page:
			return 1
		}
		return 0
	})
	if !found {
		i--
	}
	return i, int64(page-bs[i].First) * PageSize, true
}

// Index returns which block has a name; -1 where none has.
func (bs Blocks) Index(name string) int {
	return slices.IndexFunc(bs, func(b Block) bool { return b.Name == name })
}

// Range returns the pages that a piece of a block touches, as a request of the return path
// names it. It must lie in its block, and be of whole pages.
func (bs Blocks) Range(name string, offset uint64, length uint32) (first, count uint64, err error) {
	i := bs.Index(name)
	if i < 0 {
		return 0, 0, fmt.Errorf("block %q: none of the guest's", name)
	}
	size := uint64(bs[i].Length)
	if length == 0 || offset%PageSize != 0 || length%PageSize != 0 || offset > size || uint64(length) > size-offset {
		return 0, 0, fmt.Errorf("block %q of %d bytes: %d bytes from %d", name, size, length, offset)
	}
	return bs[i].First + offset/PageSize, uint64(length) / PageSize, nil
}
