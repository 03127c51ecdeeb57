package pages

import (
	"bytes"
	"errors"
	"io"
	"slices"

	"pgregory.net/rapid"
)

// model is a store in maps. Contents are small numbers; 0 is zeros.
type model struct {
	t         *rapid.T
	store     *Store
	bound     int
	waiting   map[uint64]byte
	whole     map[uint64]bool
	known     map[uint64]bool // those that wait in their first version, with an odd content
	heat      map[uint64]int  // of pages that were seen
	flight    map[uint64]*Frame
	carried   map[uint64]map[uint64]byte // by frame
	pins      int                        // bases of frames not sent yet
	sent      map[uint64]bool
	delivered map[uint64]delivered
	newest    map[uint64]byte   // last put
	missed    map[uint64]uint64 // the last frame in which it was
	frames    uint64
	ended     bool
	stopped   bool
	postCopy  bool
	skip      int
	from      uint64            // see Settle
	last      map[uint64]uint64 // the last frame of each page
	urgent    []uint64
	near      bool
	order     []uint64
	ordered   bool
}

type delivered struct {
	version uint64
	content byte
}

const modelPages = 12

func content(id byte) []byte {
	if id == 0 {
		return nil
	}
	return bytes.Repeat([]byte{id}, Size)
}

func idOf(t *rapid.T, data []byte) byte {
	if data == nil {
		return 0
	}
	if !bytes.Equal(data, bytes.Repeat(data[:1], Size)) {
		t.Fatalf("content was mixed up")
	}
	return data[0]
}

type memoryFile map[int64][]byte

func (m memoryFile) WriteAt(p []byte, at int64) (int, error) {
	m[at] = bytes.Clone(p)
	return len(p), nil
}

func (m memoryFile) ReadAt(p []byte, at int64) (int, error) {
	if m[at] == nil {
		return 0, io.EOF
	}
	return copy(p, m[at]), nil
}

func newModel(t *rapid.T) *model {
	bound := rapid.IntRange(1, 2*modelPages).Draw(t, "bound")
	store := New(modelPages, NewArena(int64(bound)*Size, nil, memoryFile{}))
	store.Foresee(func(data []byte) bool { return data[0]%2 == 1 })
	return &model{
		t: t, bound: bound, store: store, known: map[uint64]bool{},
		waiting: map[uint64]byte{}, whole: map[uint64]bool{}, heat: map[uint64]int{}, flight: map[uint64]*Frame{},
		carried: map[uint64]map[uint64]byte{}, sent: map[uint64]bool{}, delivered: map[uint64]delivered{},
		newest: map[uint64]byte{}, missed: map[uint64]uint64{}, last: map[uint64]uint64{},
	}
}

func (m *model) flights(page uint64) int {
	n := 0
	for _, carried := range m.carried {
		if _, ok := carried[page]; ok {
			n++
		}
	}
	return n
}

// slots is how many contents cannot be given up.
func (m *model) slots() int {
	n := m.pins
	for _, id := range m.waiting {
		if id != 0 {
			n++
		}
	}
	for _, carried := range m.carried {
		for _, id := range carried {
			if id != 0 {
				n++
			}
		}
	}
	return n
}

func (m *model) put(page uint64, id byte) {
	before := m.store.Progress()
	err := m.store.Put(page, content(id))
	if errors.Is(err, ErrFull) {
		if m.ended || m.slots() < m.bound {
			m.t.Fatalf("refused page %d with %d of %d in use, ended %v", page, m.slots(), m.bound, m.ended)
		}
		return
	}
	if err != nil {
		m.t.Fatal(err)
	}
	m.newest[page] = id
	old, waits := m.waiting[page]
	d, has := m.delivered[page]
	if m.store.Progress().Unchanged > before.Unchanged {
		if !(waits && old == id) && !(!waits && has && m.flights(page) == 0 && d.content == id) {
			m.t.Fatalf("page %d was called unchanged", page)
		}
		return
	}
	if waits != (m.store.Progress().Superseded > before.Superseded) {
		m.t.Fatalf("page %d: superseded, though waiting is %v", page, waits)
	}
	delete(m.known, page)
	if _, ok := m.heat[page]; ok {
		m.heat[page]++
	} else if m.heat[page] = 0; id%2 == 1 {
		m.known[page] = true
	}
	m.waiting[page] = id
}

// hasten has a page go before others: one that does already is not told twice.
func (m *model) hasten(page uint64) {
	if !slices.Contains(m.urgent, page) {
		m.urgent = append(m.urgent, page)
	}
}

func (m *model) accept(f *Frame) {
	carried := map[uint64]byte{}
	for _, page := range f.Zero {
		carried[page], m.last[page] = 0, f.Number
		delete(m.waiting, page)
		delete(m.whole, page)
	}
	for i := range f.Pages {
		p := &f.Pages[i]
		id := idOf(m.t, p.Data)
		d := m.delivered[p.Number]
		if m.waiting[p.Number] != id || p.Landed != (m.flights(p.Number) == 0) || p.Whole != m.whole[p.Number] || p.Version != d.version {
			m.t.Fatalf("page %d: content %d, not %d; landed %v; whole %v; version %d", p.Number, id, m.waiting[p.Number], p.Landed, p.Whole, p.Version)
		}
		if p.Base != nil {
			if base := p.Base[0]; !p.Landed || d.version == 0 || base != d.content || !bytes.Equal(p.Base, bytes.Repeat(p.Base[:1], Size)) {
				m.t.Fatalf("page %d: wrong base %d", p.Number, base)
			}
		}
		if p.base != 0 {
			m.pins++
		}
		carried[p.Number], m.last[p.Number] = id, f.Number
		delete(m.known, p.Number)
		delete(m.waiting, p.Number)
		delete(m.whole, p.Number)
	}
	m.flight[f.Number], m.carried[f.Number] = f, carried
}

// code stands for a coder: it looks for what the destination has.
func (m *model) code(f *Frame) {
	for i := range f.Pages {
		p := &f.Pages[i]
		id := idOf(m.t, p.Data)
		p.Coding, p.Brief = Raw, id%2 == 0
		other, version, ok := m.store.Find(p)
		if ok {
			if d := m.delivered[other]; d.version != version || d.content != id {
				m.t.Fatalf("page %d at version %d was found for content %d", other, version, id)
			}
			p.Coding = Reference
		}
		if p.Landed && (ok && other == p.Number || !p.Whole && p.Base != nil && p.Base[0] == id) {
			p.Coding = Same
			delete(m.carried[f.Number], p.Number)
		}
		if p.base != 0 {
			m.pins--
		}
	}
	m.store.Sent(f)
	m.sent[f.Number] = true
}

func (m *model) settle(frame uint64, missed []uint64) {
	if err := m.store.Missed(frame, missed); err != nil {
		m.t.Fatal(err)
	}
	carried, ok := m.carried[frame]
	if !ok {
		return
	}
	order := slices.Clone(m.flight[frame].Zero)
	for i := range m.flight[frame].Pages {
		order = append(order, m.flight[frame].Pages[i].Number)
	}
	delete(m.carried, frame)
	delete(m.flight, frame)
	for _, page := range order {
		id, ok := carried[page]
		if !ok {
			continue // Same
		}
		if !slices.Contains(missed, page) {
			if frame > m.delivered[page].version {
				m.delivered[page] = delivered{frame, id}
			}
			continue
		}
		_, waits := m.waiting[page]
		later := false
		for other, pages := range m.carried {
			_, has := pages[page]
			later = later || has && other > frame
		}
		m.missed[page] = max(m.missed[page], frame)
		if !later && m.delivered[page].version < frame {
			m.whole[page] = true
			if !waits {
				m.waiting[page] = id
				if m.postCopy {
					m.hasten(page)
				}
			}
		}
	}
}

func (m *model) check(t *rapid.T) {
	m.store.ForeseeAgain() // it knows no more than it did
	p := m.store.Progress()
	in := 0
	for _, carried := range m.carried {
		in += len(carried)
	}
	if p.Waiting != uint64(len(m.waiting)) || p.Known != uint64(len(m.known)) || p.InFlight != uint64(in) || p.Frames != m.frames || p.Delivered != uint64(len(m.delivered)) {
		t.Fatalf("%+v; model has %d waiting, %d known, %d in flight, %d frames, %d delivered", p, len(m.waiting), len(m.known), in, m.frames, len(m.delivered))
	}
	bases := uint64(0)
	for _, of := range m.store.bases {
		bases += of.count
	}
	if got, want := int(p.Held+p.Spilled)/Size, m.slots()+int(bases); got != want {
		t.Fatalf("%d slots in use, should be %d", got, want)
	}
	if m.store.refused && (m.slots() < m.bound || m.ended) {
		t.Fatalf("there is room for Put, and it was not said")
	}
	var heat [Classes]uint64
	for _, h := range m.heat {
		heat[classOf(uint8(h))]++
	}
	if heat != p.Heat {
		t.Fatalf("heat %v, should be %v", p.Heat, heat)
	}
	kept, behind := uint64(0), uint64(0)
	for page, id := range m.waiting {
		if m.flights(page) > 0 && !m.stopped {
			behind++
		}
		if (id != 0 && m.keeps(page) || m.settles(page)) && (m.flights(page) == 0 || m.stopped) {
			kept++
		}
	}
	if kept != p.Kept || behind != p.Behind {
		t.Fatalf("%d kept, should be %d; %d behind, should be %d", p.Kept, kept, p.Behind, behind)
	}
	var missing []uint64
	for first, count := range m.store.Missing {
		for i := range count {
			missing = append(missing, first+i)
		}
	}
	for page := range uint64(modelPages) {
		_, waits := m.waiting[page]
		if slices.Contains(missing, page) != waits {
			t.Fatalf("missing are %v; page %d waits %v, flies %d times", missing, page, waits, m.flights(page))
		}
	}
}

// drain delivers everything, and compares with what was put last.
func (m *model) drain() {
	m.skip = 0
	m.store.Skip(0)
	if m.from > 0 {
		m.store.Stop()
		m.ended, m.stopped = true, true
	}
	for i := 0; !m.store.Drained(); i++ {
		if i > 1000 {
			m.t.Fatal("does not drain")
		}
		for number, f := range m.flight {
			if !m.sent[number] {
				m.code(f)
			}
			m.settle(number, nil)
		}
		m.take(MaxPages)
	}
	for page, id := range m.newest {
		if m.delivered[page].content != id || m.delivered[page].version == 0 {
			m.t.Fatalf("page %d: %d was delivered, %d was put", page, m.delivered[page].content, id)
		}
		if m.delivered[page].version < m.missed[page] { // the destination waits for it, whatever it has
			m.t.Fatalf("page %d was missed in frame %d, and nothing came after frame %d", page, m.missed[page], m.delivered[page].version)
		}
	}
}
