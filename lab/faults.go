package lab

import (
	"slices"
	"sync"

	"godwit/lab/scenario"
	"godwit/lab/wan"
)

// linkFaults are the changes to uplinks that are in force. A link is what its site
// has in the file, with every change in force applied in the order they came.
type linkFaults struct {
	mu    sync.Mutex
	next  int
	inUse []linkFault
}

type linkFault struct {
	number       int
	site, uplink string
	change       func(*wan.Link)
}

// add puts a change in force; undo takes this one back.
func (f *linkFaults) add(w *world, site, uplink string, change func(*wan.Link)) (undo func() error, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next++
	number := f.next
	f.inUse = append(f.inUse, linkFault{number, site, uplink, change})
	if err := f.apply(w, site); err != nil {
		return nil, err
	}
	return func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.inUse = slices.DeleteFunc(f.inUse, func(l linkFault) bool { return l.number == number })
		return f.apply(w, site)
	}, nil
}

func (f *linkFaults) apply(w *world, site string) error {
	for _, s := range w.spec().Sites {
		if s.Name != site {
			continue
		}
		for _, u := range s.Uplinks {
			want := u.Link
			for _, l := range f.inUse {
				if l.site == site && (l.uplink == u.Name || l.uplink == scenario.AllUplinks) {
					l.change(&want)
				}
			}
			if err := w.topo.SetLink(site, u.Name, func(l *wan.Link) { *l = want }); err != nil {
				return err
			}
		}
	}
	return nil
}
