package encode_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"

	"godwit/transfer/encode"
	"godwit/transfer/pages"
)

const someTotal = 1000

func filled(b byte) []byte { return bytes.Repeat([]byte{b}, pages.Size) }

func varints(values ...uint64) []byte {
	var b []byte
	for _, v := range values {
		b = binary.AppendUvarint(b, v)
	}
	return b
}

// section is one that is not compressed. Page numbers in it are zigzag: twice the number.
func section(kind byte, parts ...[]byte) []byte {
	payload := slices.Concat(parts...)
	return slices.Concat([]byte{kind, 0}, varints(uint64(len(payload))), payload)
}

// batch is a section of whole pages.
func batch(count uint64, numbers []byte, contents []byte) []byte {
	return slices.Concat([]byte{5}, varints(count), numbers, []byte{0}, varints(uint64(len(contents))), contents)
}

func mustDecode(t *testing.T, d *encode.Decoder, frame uint64, body []byte) encode.Result {
	t.Helper()
	r, err := d.Decode(frame, body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The bytes of a body are a contract between two versions of the program.
func TestBodyIsAsSpecified(t *testing.T) {
	base := filled(1)
	changed := bytes.Clone(base)
	copy(changed[16:], "changed!")
	f := &pages.Frame{Number: 9, Zero: []uint64{5, 6, 7, 20}, Pages: []pages.Page{
		{Number: 3, Data: changed, Base: base, Version: 4, Landed: true},
		{Number: 10, Data: filled(2), Landed: true},
		{Number: 11, Data: base, Base: base, Version: 4, Landed: true},
	}}
	body, counts := encode.NewCoder(nil, nil).Encode(nil, f, encode.Off)
	want := slices.Concat(
		section(1, varints(2, 5, 3, 12, 1)),
		section(4, varints(1, 6, 5, 10, 2, 1), []byte("changed!")),
		batch(1, varints(20), filled(2)),
	)
	if diff := cmp.Diff(want, body); diff != "" {
		t.Error(diff)
	}
	wantCounts := [pages.Codings]uint64{pages.Zero: 4, pages.Delta: 1, pages.Raw: 1, pages.Same: 1}
	if diff := cmp.Diff(wantCounts, counts.Pages); diff != "" {
		t.Error(diff)
	}

	m := newMaps()
	m.version[3], m.data[3] = 4, base
	r := mustDecode(t, encode.NewDecoder(someTotal, m, nil), 9, body)
	if len(r.Pages) != 6 || !bytes.Equal(m.data[3], changed) || !bytes.Equal(m.data[10], filled(2)) || m.version[20] != 9 {
		t.Errorf("decoded %d pages", len(r.Pages))
	}
}

// TestMissedPageTravels: the destination waits for a page that it missed, also where that is again
// what it had before.
func TestMissedPageTravels(t *testing.T) {
	f := &pages.Frame{Number: 9, Pages: []pages.Page{
		{Number: 3, Data: filled(1), Base: filled(1), Version: 4, Landed: true, Whole: true},
	}}
	body, _ := encode.NewCoder(nil, nil).Encode(nil, f, encode.Off)
	if want := batch(1, varints(2*3), filled(1)); !bytes.Equal(body, want) || f.Pages[0].Coding != pages.Raw {
		t.Errorf("coded as %v, in %d bytes", f.Pages[0].Coding, len(body))
	}
}

func TestReferenceToAnotherVersionIsMissed(t *testing.T) {
	m := newMaps()
	m.version[8], m.data[8] = 6, filled(1)
	d := encode.NewDecoder(someTotal, m, nil)
	body := section(2, varints(1, 2*2, 2*6, 4)) // page 2 as page 8 was 4 frames before
	if r := mustDecode(t, d, 9, body); !slices.Equal(r.Missed, []uint64{2}) || len(r.Pages) != 0 || m.version[2] != 0 {
		t.Errorf("decoded %+v", r)
	}
	if r := mustDecode(t, d, 10, body); len(r.Missed) != 0 || !bytes.Equal(m.data[2], filled(1)) || m.version[2] != 10 {
		t.Errorf("decoded %+v", r)
	}
	m.version[2] = 12
	if r := mustDecode(t, d, 11, body); len(r.Missed) != 0 || r.Stale != 1 || m.version[2] != 12 {
		t.Errorf("decoded %+v", r)
	}
}

// TestPagesAroundOneThatIsNotWritten: pages that follow one another are written together; not with what lies between
// their contents, of a page that was missed, or has a newer version.
func TestPagesAroundOneThatIsNotWritten(t *testing.T) {
	m := newMaps()
	m.version[7], m.data[7] = 6, filled(7)
	m.version[8], m.data[8] = 6, filled(8)
	m.version[50], m.data[50] = 12, filled(9)
	d := encode.NewDecoder(someTotal, m, nil)
	for name, c := range map[string]struct {
		between       []byte // of page 50: it goes on with page 3
		missed, stale int
	}{
		"missed": {varints(96, 83, 8), 1, 0}, // as page 8 was 8 frames before
		"stale":  {varints(96, 83, 1), 0, 1}, // there is a newer one
	} {
		const frame, age = 13, 13 - 6
		m.version[50] = 12
		if c.stale > 0 {
			m.version[50] = 14
		}
		r := mustDecode(t, d, frame, section(2, varints(3, 2*2, 2*6, age), c.between, varints(93, 2*4, age)))
		if len(r.Missed) != c.missed || r.Stale != c.stale || len(r.Pages) != 2 {
			t.Errorf("%s: %+v", name, r)
		}
		if !bytes.Equal(m.data[2], filled(8)) || !bytes.Equal(m.data[3], filled(7)) || !bytes.Equal(m.data[50], filled(9)) {
			t.Errorf("%s: page 2 is of %d, page 3 of %d, page 50 of %d", name, m.data[2][0], m.data[3][0], m.data[50][0])
		}
		delete(m.version, 2)
		delete(m.version, 3)
	}
}

func TestLateFrameChangesNothing(t *testing.T) {
	m := newMaps()
	m.version[1], m.data[1] = 9, filled(9)
	d := encode.NewDecoder(someTotal, m, nil)
	for _, body := range [][]byte{
		section(1, varints(1, 1, 1)),
		batch(1, varints(2), filled(1)),
		section(4, varints(1, 2, 3, 10, 0, 1), []byte("changed!")),
		section(2, varints(1, 2, 2, 1)),
	} {
		for _, frame := range []uint64{8, 9} {
			if r := mustDecode(t, d, frame, body); r.Stale != 1 || len(r.Pages)+len(r.Missed) != 0 {
				t.Errorf("frame %d: %+v", frame, r)
			}
		}
	}
	if m.version[1] != 9 || !bytes.Equal(m.data[1], filled(9)) {
		t.Error("a late frame changed the page")
	}
}

// TestWholeFrames: all pages of a frame are packed together where the decoder takes that, and else each 16, for those
// of before; the one is smaller, and both are read.
func TestWholeFrames(t *testing.T) {
	frame := func() *pages.Frame {
		f := &pages.Frame{Number: 1}
		for n := range uint64(40) {
			data := []byte(strings.Repeat(fmt.Sprintf("line %d of some page, or of %d others\n", n*n*7919, n%16), 400))[:pages.Size]
			f.Pages = append(f.Pages, pages.Page{Number: n, Data: data})
		}
		return f
	}
	unpacked := 0
	for _, level := range []encode.Level{encode.Off, encode.S2, encode.Zstd1, encode.Zstd3, encode.Zstd7} {
		parts, counts := encode.NewCoder(nil, nil).Encode(nil, frame(), level)
		if level == encode.Off {
			unpacked = len(parts)
		} else if len(parts) > unpacked/2 {
			t.Errorf("%v: %d of %d bytes", level, len(parts), unpacked)
		}
		if all := counts.Bytes; counts.Out != uint64(len(parts)) || all[pages.Batch]+all[pages.Raw] != counts.Out {
			t.Errorf("%v: %d bytes are counted so: %+v", level, len(parts), counts)
		}
		whole, _ := encode.NewCoder(nil, nil).Whole().Encode(nil, frame(), level)
		if parts[0] != 5 || parts[1] != 16 || whole[0] != 5 || whole[1] != 40 {
			t.Errorf("%v: %d and %d pages together, want 16 and 40", level, parts[1], whole[1])
		}
		if len(whole) >= len(parts) {
			t.Errorf("%v: %d bytes in one, %d in parts", level, len(whole), len(parts))
		}
		for _, body := range [][]byte{parts, whole} {
			m := newMaps()
			if r := mustDecode(t, encode.NewDecoder(someTotal, m, nil), 1, body); len(r.Pages) != 40 || !bytes.Equal(m.data[39], frame().Pages[39].Data) {
				t.Errorf("%v: %d pages are read", level, len(r.Pages))
			}
		}
	}
}

// zstdPage is a page packed by zstd of which so many bytes come.
func zstdPage(t *testing.T, size int) []byte {
	t.Helper()
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithSingleSegment(true))
	if err != nil {
		t.Fatal(err)
	}
	packed := enc.EncodeAll(make([]byte, size), nil)
	return slices.Concat([]byte{5, 1, 2, 2}, varints(uint64(len(packed))), packed) //nolint:gosec // not negative
}

func TestLyingBodies(t *testing.T) {
	bomb := s2.Encode(nil, make([]byte, 1<<24))
	for name, body := range map[string][]byte{
		"cut header":         {5},
		"no such kind":       section(9, varints(0)),
		"no such kind of 1":  section(9, varints(1)),
		"no such packing":    {1, 3, 1, 1, 0},
		"numbers cut":        {5, 3, 2, 2},
		"no packing":         {5, 1, 2},
		"two pages of one":   batch(1, varints(2), make([]byte, 2*pages.Size)),
		"longer than body":   {1, 0, 200, 1},
		"no length":          {1, 0},
		"endless number":     slices.Concat([]byte{1, 0}, bytes.Repeat([]byte{0xff}, 11)),
		"bytes left":         section(1, varints(1, 0, 1, 0)),
		"empty section":      section(1),
		"no zeros":           section(1, varints(0)),
		"a run of no zeros":  section(1, varints(2, 1, 1, 0, 0)),
		"no references":      section(2, varints(0)),
		"nothing known":      section(3, varints(0)),
		"no deltas":          section(4, varints(0)),
		"delta of no words":  section(4, varints(1, 0, 4, 4, 1, 0, 1, 0)),
		"no pages":           batch(0, nil, nil),
		"page past the end":  batch(1, varints(2*someTotal), filled(1)),
		"page before zero":   batch(1, varints(1), filled(1)),
		"content cut":        batch(1, varints(2), filled(1)[1:]),
		"65 in a batch":      batch(65, make([]byte, 65), make([]byte, 65*pages.Size)),
		"65 pages":           bytes.Repeat(zstdPage(t, pages.Size), pages.MaxPages+1),
		"zeros past the end": section(1, varints(1, someTotal-1, 2)),
		"zeros overflow":     section(1, varints(2, 1, 1, 1<<64-3, 1)),
		"endless zeros":      section(1, varints(1, 1, 1<<63)),
		"many entries":       section(1, varints(1<<62)),
		"age 0":              section(2, varints(1, 2, 2, 0)),
		"before the first":   section(2, varints(1, 2, 2, 9)),
		"delta, wrong base":  section(4, varints(1, 2, 1, 10, 0, 1), []byte("changed!")),
		"delta past page":    section(4, varints(1, 0, 4, 11, 512, 1), []byte("changed!")),
		"half a word":        section(4, varints(1, 0, 4, 3, 0, 1), []byte("c")),
		"delta, long run":    section(4, varints(1, 0, 4, 18, 1<<61, 1), []byte("changed!")),
		"delta, long words":  section(4, varints(1, 0, 4, 4, 0, 513), []byte("c")),
		"delta far":          section(4, varints(1, 0, 4, 13, 512, 0, 1, 1), []byte("changed!")),
		"no delta":           section(4, varints(1, 0, 4)),
		"delta cut":          section(4, varints(1, 0, 4, 20, 0, 1)),
		"known cut":          section(3, varints(1, 2, 1, 1), make([]byte, 31)),
		"known set":          section(3, varints(1, 2, 1<<32, 1), make([]byte, 32)),
		"s2 bomb":            slices.Concat([]byte{1, 1}, varints(1<<24, uint64(len(bomb))), bomb),
		"s2 lies":            slices.Concat([]byte{1, 1}, varints(100, uint64(len(bomb))), bomb),
		"s2 lies of a page":  slices.Concat([]byte{5, 1, 2, 1}, varints(uint64(len(bomb))), bomb),
		"zstd lies":          {1, 2, 10, 4, 0x28, 0xb5, 0x2f, 0xfd},
		"zstd is none":       {1, 2, 10, 4, 1, 2, 3, 4},
		"zstd of more":       zstdPage(t, pages.Size+8),
		"zstd of less":       zstdPage(t, pages.Size-8),
		"zstd bomb":          zstdPage(t, 1<<24),
		"too long":           make([]byte, encode.MaxBody+1),
	} {
		m := newMaps()
		m.version[0], m.data[0] = 5, filled(1)
		if _, err := encode.NewDecoder(someTotal, m, &images{}).Decode(9, body); !errors.Is(err, encode.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := encode.NewDecoder(someTotal, newMaps(), nil).Decode(0, nil); !errors.Is(err, encode.ErrCorrupt) {
		t.Errorf("frame 0: %v", err)
	}
}

type broken struct{ *maps }

var errBroken = errors.New("broken")

func (b broken) Write(uint64, uint64, []byte) (bool, error)      { return false, errBroken }
func (b broken) WriteRun(uint64, uint64, []byte) (uint64, error) { return 0, errBroken }

// unread is a mirror that can be written alone.
type unread struct{ *maps }

func (u unread) Read(uint64, []byte) (uint64, error) { return 0, errBroken }

func TestMirrorsErrorIsNotTheSenders(t *testing.T) {
	for name, c := range map[string]struct {
		m    encode.Mirror
		body []byte
	}{
		"zeros":     {broken{newMaps()}, section(1, varints(1, 0, 1))},
		"a page":    {broken{newMaps()}, batch(1, varints(2), filled(1))},
		"its delta": {unread{newMaps()}, section(4, varints(1, 0, 4, 10, 0, 1), []byte("changed!"))},
	} {
		_, err := encode.NewDecoder(someTotal, c.m, nil).Decode(9, c.body)
		if !errors.Is(err, errBroken) || errors.Is(err, encode.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestKnownContent: what is known here is taken from there, where it is what was meant; it is asked for where it is
// not, or nothing is known.
func TestKnownContent(t *testing.T) {
	id := pages.Identify(filled(1))
	body := section(3, varints(1, 2, 7, 1), id[:])
	for name, c := range map[string]struct {
		known encode.Contents
		has   bool
	}{
		"known":         {&images{contents: [][]byte{filled(2), filled(1)}}, true},
		"another":       {&images{contents: [][]byte{filled(1), filled(2)}}, false},
		"changed":       {&images{contents: [][]byte{filled(2), filled(1)}, changed: true}, false},
		"not there":     {lost{}, false},
		"nothing known": {nil, false},
	} {
		m := newMaps()
		r := mustDecode(t, encode.NewDecoder(someTotal, m, c.known), 9, body)
		if has := bytes.Equal(m.data[1], filled(1)); has != c.has || (len(r.Pages) == 1) != c.has || (len(r.Missed) == 1) == c.has {
			t.Errorf("%s: it has it: %v; %d pages, missed %v", name, has, len(r.Pages), r.Missed)
		}
	}
}

// lost are contents that cannot be read, though they are those that were meant.
type lost struct{}

func (lost) Content(_ uint32, _ uint64, dst []byte) error {
	copy(dst, filled(1))
	return errBroken
}

// TestCountsAllBytes: what a frame is coded to is counted whole, each byte as of one coding.
func TestCountsAllBytes(t *testing.T) {
	changed := filled(1)
	changed[100]++
	f := &pages.Frame{Number: 9, Zero: []uint64{5, 6}, Pages: []pages.Page{
		{Number: 0, Data: changed, Base: filled(1), Version: 5, Landed: true}, {Number: 10, Data: filled(2)}, {Number: 11, Data: filled(3)},
	}}
	body, counts := encode.NewCoder(nil, nil).Encode(nil, f, encode.Off)
	sum := uint64(0)
	for coding, n := range counts.Bytes {
		sum += n
		if (n > 0) != (counts.Pages[coding] > 0) {
			t.Errorf("coding %d: %d pages of %d bytes", coding, counts.Pages[coding], n)
		}
	}
	if sum != counts.Out || sum != uint64(len(body)) || counts.Bytes[pages.Delta] == 0 || counts.Bytes[pages.Zero] == 0 {
		t.Errorf("%d bytes are counted so: %+v", len(body), counts)
	}
}

func FuzzDecode(f *testing.F) {
	random := func() []byte {
		b := make([]byte, pages.Size)
		for i := range b {
			b[i] = byte(i * i >> 3)
		}
		return b
	}()
	frame := func() *pages.Frame {
		return &pages.Frame{Number: 9, Zero: []uint64{5, 6}, Pages: []pages.Page{
			{Number: 0, Data: append(bytes.Clone(random[:4000]), filled(1)[4000:]...), Base: random, Version: 5, Landed: true},
			{Number: 10, Data: filled(2)}, {Number: 11, Data: random},
		}}
	}
	for level := encode.Off; int(level) < encode.Levels; level++ {
		body, _ := encode.NewCoder(nil, nil).Encode(nil, frame(), level)
		f.Add(body)
	}
	f.Add(section(2, varints(1, 2, 1, 4)))
	f.Add(section(3, varints(1, 2, 7, 0), make([]byte, 32)))
	f.Fuzz(func(t *testing.T, body []byte) {
		m := newMaps()
		m.version[0], m.data[0] = 5, random
		d := encode.NewDecoder(someTotal, m, nil)
		r, err := d.Decode(9, body)
		if err != nil {
			return
		}
		if len(r.Pages) > pages.MaxPages+pages.MaxZero || len(r.Missed) > pages.MaxPages {
			t.Fatalf("%d pages, %d missed", len(r.Pages), len(r.Missed))
		}
		missed := slices.Clone(r.Missed)
		again, err := d.Decode(9, body)
		if err != nil || len(again.Pages) != 0 || !slices.Equal(again.Missed, missed) && len(r.Pages) == 0 {
			t.Fatalf("repeated: %d pages, missed %v then %v, error %v", len(again.Pages), missed, again.Missed, err)
		}
	})
}
