package work

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"godwit/lab/image/workload"
	"godwit/vm/guest"
)

// A store is where an area's pages live: memory or a disk.
type store interface {
	pages() uint32
	// write puts a page there that make has filled.
	write(number uint32, fill func(page []byte)) error
	// read hands a page as it is stored to look.
	read(number uint32, look func(page []byte)) error
	close() error
}

// An area is a store with the version of each page that was written last. A page
// of an older version than it should be is as corrupt as a broken one: that is what
// a migration that loses an update leaves behind.
type area struct {
	id    uint32
	text  bool
	touch bool // a rewritten page is changed in place
	store store

	mu       sync.Mutex // held for a batch of pages, so that a check sees whole ones
	versions []uint32
	random   workload.Random
	writes   uint64
	wrote    *atomic.Uint64 // by all areas of the guest
	late     uint64
	failed   error
}

func newArea(id uint32, s store, w workload.Workload, wrote *atomic.Uint64) *area {
	return &area{id: id, text: w.Text, touch: w.Touch, store: s, versions: make([]uint32, s.pages()), random: workload.Random(uint64(id) << 32), wrote: wrote}
}

// batch is how many pages are written or checked between two chances for others.
const batch = 64

// fill writes every page once.
func (a *area) fill(ctx context.Context) error {
	for from := uint32(0); from < a.store.pages(); from += batch {
		if err := ctx.Err(); err != nil {
			return err
		}
		a.mu.Lock()
		for number := from; number < min(from+batch, a.store.pages()); number++ {
			a.write(number)
		}
		err := a.failed
		a.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *area) write(number uint32) {
	version := a.versions[number] + 1
	err := a.store.write(number, func(page []byte) {
		if a.touch && version > 1 {
			workload.TouchPage(page, version, &a.random)
			return
		}
		workload.FillPage(page, a.id, number, version, a.text, &a.random)
	})
	if err != nil {
		a.failed = err
		return
	}
	a.versions[number] = version
	a.writes++
	a.wrote.Add(1)
}

// pace is how often pages are rewritten, and backlog how much of what could not be
// written in time is made up for.
const (
	pace    = 10 * time.Millisecond
	backlog = 500 * time.Millisecond
)

// rewrite writes rate bytes per second as whole pages, chosen uniformly in the
// first hot share, until ctx ends.
func (a *area) rewrite(ctx context.Context, rate int64, hot float64) {
	share := max(1, uint32(float64(a.store.pages())*hot))
	perSecond := float64(rate) / workload.PageSize
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	var owed float64
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := time.Now()
		owed += now.Sub(last).Seconds() * perSecond
		last = now
		if most := max(1, perSecond*backlog.Seconds()); owed > most {
			a.mu.Lock()
			a.late += uint64(owed - most)
			a.mu.Unlock()
			owed = most
		}
		for owed >= 1 {
			a.mu.Lock()
			for n := 0; n < batch && owed >= 1; n++ {
				a.write(a.random.Below(share))
				owed--
			}
			a.mu.Unlock()
		}
	}
}

func (a *area) verify(v *guest.Verified) {
	for from := uint32(0); from < a.store.pages(); from += batch {
		a.mu.Lock()
		for number := from; number < min(from+batch, a.store.pages()); number++ {
			ok := false
			err := a.store.read(number, func(page []byte) {
				ok = workload.CheckPage(page, a.id, number, a.versions[number])
			})
			v.Pages++
			if ok && err == nil {
				continue
			}
			if v.Corrupt++; v.First == "" {
				v.First = fmt.Sprintf("area %d page %d version %d", a.id, number, a.versions[number])
			}
		}
		a.mu.Unlock()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	v.Writes += a.writes
	v.Late += a.late
	if a.failed != nil {
		v.Errors = append(v.Errors, a.failed.Error())
	}
}
