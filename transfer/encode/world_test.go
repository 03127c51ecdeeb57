package encode_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"godwit/transfer/encode"
	"godwit/transfer/pages"
	"godwit/transfer/pages/spill"
)

// maps is a mirror in maps.
type maps struct {
	version map[uint64]uint64
	data    map[uint64][]byte
}

func newMaps() *maps { return &maps{map[uint64]uint64{}, map[uint64][]byte{}} }

func (m *maps) Read(page uint64, dst []byte) (uint64, error) {
	clear(dst[:pages.Size])
	copy(dst, m.data[page])
	return m.version[page], nil
}

func (m *maps) Write(page, version uint64, data []byte) (bool, error) {
	if version <= m.version[page] {
		return false, nil
	}
	m.version[page], m.data[page] = version, bytes.Clone(data)
	return true, nil
}

func (m *maps) WriteRun(first, version uint64, data []byte) (newer uint64, err error) {
	return runOf(m, first, version, data)
}

// runOf writes pages one by one.
func runOf(m encode.Mirror, first, version uint64, data []byte) (newer uint64, err error) {
	for i := range len(data) / pages.Size {
		is, err := m.Write(first+uint64(i), version, data[i*pages.Size:][:pages.Size])
		if err != nil {
			return newer, err
		}
		if is {
			newer |= 1 << i
		}
	}
	return newer, nil
}

// images are sets of contents that both ends have, as long as they do.
type images struct {
	contents [][]byte
	changed  bool // at the destination, since the source asked
}

func (s *images) Lookup(fast uint64) (uint32, uint64, bool) {
	for i, c := range s.contents {
		if pages.Fast(c) == fast {
			return 7, uint64(i), true
		}
	}
	return 0, 0, false
}

func (s *images) Len() int { return len(s.contents) }

func (s *images) Content(set uint32, index uint64, dst []byte) error {
	copy(dst, s.contents[index])
	if s.changed {
		dst[0]++
	}
	return nil
}

// world is a guest, a source and a destination, with frames and answers under way between
// them that come in any order, late, and more than once.
type world struct {
	t       *rapid.T
	random  *rand.Rand
	guest   [][]byte // nil: zeros
	store   *pages.Store
	coder   *encode.Coder
	decoder *encode.Decoder
	mirror  *maps
	images  *images
	level   encode.Level
	frames  map[uint64][]byte // under way, or delivered and not yet known to be
	answers map[uint64][]uint64
	taken   *pages.Frame // taken and not coded
	counts  encode.Counts
	missed  int
	stale   int
}

const worldPages = 40

func newWorld(t *rapid.T) *world {
	w := &world{
		t: t, random: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1)),
		guest: make([][]byte, worldPages), mirror: newMaps(), images: &images{},
		frames: map[uint64][]byte{}, answers: map[uint64][]uint64{},
		level: encode.Level(rapid.IntRange(0, encode.Levels-1).Draw(t, "level")),
	}
	memory := int64(rapid.SampledFrom([]int{10, 30, 200}).Draw(t, "memory"))
	for range 3 {
		w.images.contents = append(w.images.contents, w.text())
	}
	file, err := spill.Create(os.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	w.store = pages.New(worldPages, pages.NewArena(memory*pages.Size, nil, file))
	w.coder = encode.NewCoder(w.store, w.images)
	w.decoder = encode.NewDecoder(worldPages, w.mirror, w.images)
	return w
}

func (w *world) text() []byte {
	b := make([]byte, pages.Size)
	for i := range b {
		b[i] = "etaoin shr"[w.random.IntN(10)]
	}
	return b
}

// write changes a page of the guest, and puts it if there is room.
func (w *world) write(page int) {
	old := w.guest[page]
	var data []byte
	switch w.random.IntN(8) {
	case 0: // zeros
	case 1:
		data = w.text()
	case 2:
		data = make([]byte, pages.Size)
		for at := 0; at < pages.Size; at += 8 {
			binary.LittleEndian.PutUint64(data[at:], w.random.Uint64())
		}
	case 3:
		data = bytes.Clone(w.guest[w.random.IntN(worldPages)])
	case 4:
		data = bytes.Clone(w.images.contents[w.random.IntN(len(w.images.contents))])
	case 5:
		data = bytes.Clone(old)
	default:
		data = make([]byte, pages.Size)
		copy(data, old)
		for range 1 + w.random.IntN(20) {
			data[w.random.IntN(pages.Size)] = byte(w.random.Uint32())
		}
	}
	if err := w.store.Put(uint64(page), data); err == nil {
		w.guest[page] = data
	}
}

// encode codes what was taken, which may be long after it was.
func (w *world) encode() {
	if w.taken == nil {
		f, err := w.store.Take(1 + w.random.IntN(40))
		if err != nil {
			w.t.Fatal(err)
		}
		w.taken = f
		return
	}
	body, counts := w.coder.Encode(nil, w.taken, w.level)
	if len(body) > encode.MaxBody {
		w.t.Fatalf("body of %d bytes", len(body))
	}
	for i, n := range counts.Pages {
		w.counts.Pages[i] += n
	}
	w.store.Sent(w.taken)
	w.frames[w.taken.Number] = body
	w.taken = nil
}

// some returns any key of a map, chosen by the seed.
func some[V any](w *world, of map[uint64]V) (uint64, bool) {
	if len(of) == 0 {
		return 0, false
	}
	keys := make([]uint64, 0, len(of))
	for k := range of {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys[w.random.IntN(len(keys))], true
}

// deliver brings any frame, perhaps one that was there before; it is answered.
func (w *world) deliver() {
	number, ok := some(w, w.frames)
	if !ok {
		return
	}
	result, err := w.decoder.Decode(number, w.frames[number])
	if err != nil {
		w.t.Fatal(err)
	}
	for _, p := range result.Pages {
		if w.mirror.version[p.Page] != number || !bytes.Equal(w.mirror.data[p.Page], p.Data) {
			w.t.Fatalf("page %d of frame %d is not what the mirror has", p.Page, number)
		}
	}
	w.missed += len(result.Missed)
	w.stale += result.Stale
	if first, ok := w.answers[number]; !ok {
		w.answers[number] = slices.Clone(result.Missed)
	} else if len(result.Missed) > len(first) {
		w.t.Fatalf("frame %d missed %v, then %v", number, first, result.Missed)
	}
}

// answer brings an answer to the source. A copy of the frame may still be under way.
func (w *world) answer() {
	number, ok := some(w, w.answers)
	if !ok {
		return
	}
	if err := w.store.Missed(number, w.answers[number]); err != nil {
		w.t.Fatal(err)
	}
	if w.random.IntN(3) > 0 {
		delete(w.frames, number)
		delete(w.answers, number)
	}
}

func (w *world) step() {
	switch w.random.IntN(6) {
	case 0, 1:
		hot := w.random.IntN(2) == 0
		for range 1 + w.random.IntN(6) {
			if hot {
				w.write(w.random.IntN(5))
			} else {
				w.write(w.random.IntN(worldPages))
			}
		}
	case 2, 3:
		w.encode()
	case 4:
		w.deliver()
	case 5:
		w.answer()
	}
}

// settle lets everything arrive, and compares page by page.
func (w *world) settle() {
	for i := 0; !w.store.Drained() || w.taken != nil; i++ {
		if i > 100000 {
			w.t.Fatalf("does not settle: %+v", w.store.Progress())
		}
		w.encode()
		w.deliver()
		w.answer()
	}
	for page, want := range w.guest {
		got, full := make([]byte, pages.Size), make([]byte, pages.Size)
		copy(got, w.mirror.data[uint64(page)])
		copy(full, want)
		if !bytes.Equal(got, full) {
			w.t.Fatalf("page %d differs", page)
		}
	}
}

func TestMirrorBecomesGuest(t *testing.T) {
	var seen encode.Counts
	var missed, stale int
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		for range rapid.IntRange(0, 400).Draw(t, "steps") {
			w.step()
		}
		w.images.changed = rapid.Bool().Draw(t, "images changed")
		if rapid.Bool().Draw(t, "stop") {
			if rapid.Bool().Draw(t, "settle") {
				w.store.Settle(math.MaxUint64)
				for range 30 {
					w.step()
				}
			}
			w.store.Stop()
			for range 50 {
				w.step()
			}
		}
		w.settle()
		for i, n := range w.counts.Pages {
			seen.Pages[i] += n
		}
		missed, stale = missed+w.missed, stale+w.stale
	})
	t.Logf("pages by coding %v, missed %d, stale %d", seen.Pages, missed, stale)
	for coding := pages.Zero; int(coding) < pages.Codings; coding++ {
		if seen.Pages[coding] == 0 {
			t.Errorf("coding %d never came up", coding)
		}
	}
	if missed == 0 || stale == 0 {
		t.Errorf("missed %d, stale %d: late frames never came up", missed, stale)
	}
}
