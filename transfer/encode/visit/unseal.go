package visit

import (
	"context"
	"errors"
	"fmt"
	"io"

	"godwit/transfer/pages"
)

// unseal is Content of a sealed file.
func (f *File) unseal(index uint64, dst []byte) error {
	if index >= maxPages || pageAt(index) >= f.size {
		return fmt.Errorf("no page %d", index)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if group := index / groupPages; f.table == nil || group != f.group { // pages are asked for by rising number, mostly
		table := make([]byte, pages.Size)
		if _, err := f.file.ReadAt(table, tableAt(index)); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		f.table, f.group = table, group
	}
	if f.sealed == nil {
		f.sealed = make([]byte, pages.Size+tagSize)
	}
	return f.unsealBy(entryOf(f.table, index), index, f.sealed, dst)
}

// unsealBy reads the page of an entry, by way of sealed, which has room for it and its tag.
func (f *File) unsealBy(e entry, index uint64, sealed, dst []byte) error {
	if e.number() == 0 {
		return fmt.Errorf("no page %d", index)
	}
	if _, err := f.file.ReadAt(sealed[:pages.Size], pageAt(index)); err != nil {
		return err
	}
	copy(sealed[pages.Size:], e.tag())
	nonce, about := nonceFor(e.number(), index)
	if _, err := f.seal.Open(dst[:0:pages.Size], nonce[:], sealed, about[:]); err != nil {
		return fmt.Errorf("page %d: %w", index, err)
	}
	return nil
}

// sealedHashes is Hashes of a sealed file. A page that cannot be unsealed is none.
func (f *File) sealedHashes(ctx context.Context, most, total int, yield func(first uint64, hashes []uint64) bool) error {
	r := Run{Most: most, Total: total, Yield: yield}
	table, data, sealed := make([]byte, pages.Size), make([]byte, pages.Size), make([]byte, pages.Size+tagSize)
	for group := uint64(0); tableAt(group*groupPages) < f.size && !r.Over; group++ {
		from, _, err := f.extent(tableAt(group * groupPages))
		if err != nil {
			return err
		}
		group = max(group, uint64(from/pages.Size-1)/(1+groupPages)) //nolint:gosec // not below the first table
		if _, err := f.file.ReadAt(table, tableAt(group*groupPages)); err != nil {
			if errors.Is(err, io.EOF) {
				break
			}
			return fmt.Errorf("read contents: %w", err)
		}
		for page := group * groupPages; page < (group+1)*groupPages && !r.Over; page++ {
			e := entryOf(table, page)
			if e.number() == 0 {
				continue
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			if f.unsealBy(e, page, sealed, data) == nil {
				r.Add(page, hashesOf(data)[0])
			}
		}
	}
	r.Flush()
	return nil
}

// Run gathers hashes of pages (pages.Fast) for Yield, in runs of pages that follow one another, of up to
// Most, 0 where there is none; a page that lies behind begins another. At most Total go, with those.
type Run struct {
	Most, Total int
	Yield       func(first uint64, hashes []uint64) bool
	Over        bool // no more is wanted

	first  uint64
	hashes []uint64
}

// Add takes one.
func (r *Run) Add(page, hash uint64) {
	next := r.first + uint64(len(r.hashes))
	if n := len(r.hashes); n > 0 && (page-next > narrow || n+int(page-next) >= r.Most) { //nolint:gosec // narrow at most
		r.Flush()
	}
	if len(r.hashes) == 0 {
		r.first, next = page, page
	}
	if r.Over {
		return
	}
	for range page - next {
		r.hashes = append(r.hashes, 0)
	}
	if r.hashes = append(r.hashes, hash); len(r.hashes) >= r.Total {
		r.hashes = r.hashes[:r.Total]
		r.Flush()
	}
}

// Flush hands on what was gathered.
func (r *Run) Flush() {
	if len(r.hashes) == 0 || r.Over {
		return
	}
	r.Total -= len(r.hashes)
	r.Over = !r.Yield(r.first, r.hashes) || r.Total <= 0
	r.hashes = nil
}
