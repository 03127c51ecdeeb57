package qstream_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"godwit/transfer/qstream"
)

var rewrite = flag.Bool("rewrite", false, "rewrite testdata/*.txt from the captures")

// story tells what a stream holds, in text. Pages are told by their block.
func story(t testing.TB, r io.Reader) string {
	t.Helper()
	var b strings.Builder
	p := qstream.NewParser(r)
	var pro qstream.Prologue
	pages := newCount()
	tail := crc32.NewIEEE()
	for {
		event, err := p.Next()
		if errors.Is(err, io.EOF) {
			return b.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		switch e := event.(type) {
		case *qstream.Prologue:
			pro = *e
			tellPrologue(&b, e)
		case *qstream.Page:
			pages.add(pro.Blocks, e)
		case *qstream.RoundEnd:
			pages.tell(&b, pro.Blocks)
			b.WriteString("part ends\n")
		case *qstream.Command:
			fmt.Fprintf(&b, "command %v %x\n", e.Code, e.Data)
		case *qstream.End:
			pages.tell(&b, pro.Blocks)
			b.WriteString("RAM ends\n")
		case *qstream.Tail:
			_, _ = tail.Write(e.Data)
			if e.Last {
				fmt.Fprintf(&b, "tail: devices %d bytes, crc of all %08x\n", e.Devices, tail.Sum32())
			}
		case *qstream.Opaque:
			fmt.Fprintf(&b, "opaque: %s\n", e.Reason)
		}
	}
}

func tellPrologue(b *strings.Builder, p *qstream.Prologue) {
	fmt.Fprintf(b, "machine %s\n", p.Machine)
	for _, c := range p.Commands {
		fmt.Fprintf(b, "command %v %x at %d of %d\n", c.Code, c.Data, c.At, len(p.Head))
	}
	fmt.Fprintf(b, "section %d, instance %d\n", p.Section, p.Instance)
	for _, k := range p.Blocks {
		fmt.Fprintf(b, "block %q %d bytes, pages of %d, from page %d\n", k.Name, k.Length, k.PageSize, k.First)
	}
}

// count counts the pages of each block, and sums up their content.
type count struct{ full, zero, sum map[int]uint32 }

func newCount() *count {
	return &count{map[int]uint32{}, map[int]uint32{}, map[int]uint32{}}
}

func (c *count) add(blocks qstream.Blocks, p *qstream.Page) {
	i, offset, _ := blocks.Find(p.Number)
	if p.Zero {
		c.zero[i]++
	} else {
		c.full[i]++
	}
	c.sum[i] += crc32.ChecksumIEEE(p.Data) ^ uint32(offset)
}

func (c *count) tell(b *strings.Builder, blocks qstream.Blocks) {
	for i, k := range blocks {
		if c.full[i]+c.zero[i] > 0 {
			fmt.Fprintf(b, "  %q: %d pages, %d zero, sum %08x\n", k.Name, c.full[i], c.zero[i], c.sum[i])
		}
	}
	*c = *newCount()
}

func TestGoldenCaptures(t *testing.T) {
	for name, stream := range captures(t) {
		got := story(t, bytes.NewReader(stream))
		golden := filepath.Join("testdata", name+".txt")
		if *rewrite {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
		}
	}
}

// TestPiecesDoNotMatter reads byte by byte, in halves, and with errors that come with data.
func TestPiecesDoNotMatter(t *testing.T) {
	for name, stream := range captures(t) {
		want := story(t, bytes.NewReader(stream))
		for kind, r := range map[string]io.Reader{
			"bytes":  iotest.OneByteReader(bytes.NewReader(stream)),
			"halves": iotest.HalfReader(bytes.NewReader(stream)),
			"eof":    iotest.DataErrReader(bytes.NewReader(stream)),
		} {
			if got := story(t, r); got != want {
				t.Errorf("%s by %s: got\n%s\nwant\n%s", name, kind, got, want)
			}
		}
	}
}

// TestWhatIsParsedIsWrittenAgain: the same bytes, but that the pages which QEMU puts into END
// are in a PART before it.
func TestWhatIsParsedIsWrittenAgain(t *testing.T) {
	for name, stream := range captures(t) {
		var copied bytes.Buffer
		if err := copyStream(&copied, bytes.NewReader(stream)); err != nil {
			t.Fatal(err)
		}
		out, tail := copied.Bytes(), load(t, bytes.NewReader(stream)).tail
		const partEnd, part, end = 5 + 5 + 8, 2, 3 // FOOTER; END and its EOS
		at := len(out) - len(tail) - partEnd
		out = append(out[:at:at], out[at+partEnd:]...)
		i := differ(out, stream)
		if i < 0 || out[i] != part || stream[i] != end || differ(out[i+1:], stream[i+1:]) >= 0 {
			t.Errorf("%s: %d bytes became %d, which differ from byte %d", name, len(stream), len(out), i)
		}
	}
}

// copyStream writes what it parses.
func copyStream(to io.Writer, from io.Reader) error {
	p := qstream.NewParser(from)
	w := qstream.NewWriter(to, &qstream.Prologue{})
	for {
		event, err := p.Next()
		if errors.Is(err, io.EOF) {
			return w.Flush()
		}
		if err != nil {
			return err
		}
		switch e := event.(type) {
		case *qstream.Prologue:
			w = qstream.NewWriter(to, e)
			err = w.Begin()
		case *qstream.Page:
			if e.Zero {
				err = w.Zero(e.Number)
			} else {
				err = w.Page(e.Number, e.Data)
			}
		case *qstream.RoundEnd:
			err = w.EndPart()
		case *qstream.Command:
			err = w.Command(e.Code, e.Data)
		case *qstream.End:
			err = w.End()
		case *qstream.Tail:
			err = w.Tail(e.Data)
		case *qstream.Opaque:
			err = w.Opaque(e.Data)
		}
		if err != nil {
			return err
		}
	}
}

// differ returns where two slices differ first; -1 if nowhere.
func differ(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	if len(a) != len(b) {
		return min(len(a), len(b))
	}
	return -1
}

// image is a guest's memory and the rest of its stream, as a stream leaves them.
type image struct {
	pro    *qstream.Prologue
	pages  map[uint64][]byte // nil: zero
	tail   []byte
	device int64
}

// load does what a destination does with a stream.
func load(t testing.TB, r io.Reader) *image {
	t.Helper()
	im := &image{pages: map[uint64][]byte{}}
	p := qstream.NewParser(r)
	for {
		event, err := p.Next()
		if errors.Is(err, io.EOF) {
			return im
		}
		if err != nil {
			t.Fatal(err)
		}
		switch e := event.(type) {
		case *qstream.Prologue:
			pro := *e
			im.pro = &pro
		case *qstream.Page:
			im.pages[e.Number] = bytes.Clone(e.Data)
		case *qstream.Tail:
			im.tail = append(im.tail, e.Data...)
			im.device = e.Devices
		}
	}
}

// put writes some pages of an image.
func (im *image) put(t testing.TB, w *qstream.Writer, pages []uint64) {
	t.Helper()
	for _, n := range pages {
		var err error
		if data := im.pages[n]; data == nil {
			err = w.Zero(n)
		} else {
			err = w.Page(n, data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// shuffled are the numbers of all pages, in an order that a seed tells.
func (im *image) shuffled(seed uint64) []uint64 {
	order := make([]uint64, 0, len(im.pages))
	for _, i := range rand.New(rand.NewPCG(seed, 0)).Perm(int(im.pro.Blocks.Pages())) {
		if _, ok := im.pages[uint64(i)]; ok {
			order = append(order, uint64(i))
		}
	}
	return order
}

func TestNewestPagesInAnyOrderAreTheSameMemory(t *testing.T) {
	for name, stream := range captures(t) {
		im := load(t, bytes.NewReader(stream))
		var out bytes.Buffer
		w := qstream.NewWriter(&out, im.pro)
		if err := w.Begin(); err != nil {
			t.Fatal(err)
		}
		order := im.shuffled(1)
		im.put(t, w, order[:len(order)/2])
		if err := w.EndPart(); err != nil {
			t.Fatal(err)
		}
		im.put(t, w, order[len(order)/2:])
		if err := errors.Join(w.End(), w.Tail(im.tail)); err != nil {
			t.Fatal(err)
		}
		again := load(t, &out)
		if !bytes.Equal(again.tail, im.tail) || again.device != im.device || len(again.pages) != len(im.pages) {
			t.Errorf("%s: another tail, or other pages", name)
		}
		for n, data := range im.pages {
			if got, ok := again.pages[n]; !ok || !bytes.Equal(got, data) {
				t.Fatalf("%s: page %d is another", name, n)
			}
		}
	}
}
