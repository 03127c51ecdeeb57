package qstream_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"godwit/transfer/qstream"
)

// FuzzParser: whatever comes, events keep their promises, and what was written from a
// stream that parses gives the same events. Its inputs are long, and Go tries for a minute to shorten each that is new: without
// -fuzzminimizetime 10x it does little else.
func FuzzParser(f *testing.F) {
	const description = `{"page_size": 4096, "devices": [{}]}`
	for _, stream := range captures(f) {
		im := load(f, bytes.NewReader(stream))
		im.tail = append(im.tail[:100:100], "\x00\x06\x00\x00\x00"+string(rune(len(description)))+description...)
		seed := small(f, im)
		load(f, bytes.NewReader(seed)) // it parses to its end
		f.Add(seed)
	}
	f.Add(inPart().be64(2).name("b").raw("00" + eosFooter).raw("08 0002 0004 00000005 02 00000007").be64(0x22).raw("00" + eosFooter).Bytes())
	f.Add(header().raw("04 00000001").name("virtio-mem-early").Bytes())
	f.Fuzz(func(t *testing.T, in []byte) {
		first, err := trace(t, bytes.NewReader(in))
		if err != nil {
			return
		}
		var out bytes.Buffer
		if err := copyStream(&out, bytes.NewReader(in)); err != nil {
			t.Fatalf("parsed, but not written: %v", err)
		}
		again, err := trace(t, &out)
		if err != nil || !bytes.Equal(first, again) {
			t.Fatalf("parsed again: %v; another stream", err)
		}
	})
}

// small is a stream with few pages of an image, most of them zero, and its tail.
func small(t testing.TB, im *image) []byte {
	var out bytes.Buffer
	w := qstream.NewWriter(&out, im.pro)
	if err := w.Begin(); err != nil {
		t.Fatal(err)
	}
	im.put(t, w, im.shuffled(2)[:10])
	if err := errors.Join(w.EndPart(), w.Command(qstream.SwitchoverStart, nil), w.Zero(0)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.End(), w.Tail(im.tail)); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// trace is all that a stream says, but for where its sections end.
func trace(t *testing.T, r io.Reader) ([]byte, error) {
	p := qstream.NewParser(r)
	var pages uint64
	var b []byte
	for {
		event, err := p.Next()
		if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return b, nil
		}
		if err != nil {
			return nil, err
		}
		switch e := event.(type) {
		case *qstream.Prologue:
			pages = e.Blocks.Pages()
			b = append(b, e.Head...)
		case *qstream.Page:
			if e.Number >= pages || e.Zero != (e.Data == nil) || !e.Zero && len(e.Data) != qstream.PageSize {
				t.Fatalf("page %+v of %d", e, pages)
			}
			b = append(b, byte(e.Number), byte(e.Number>>8))
			b = append(b, e.Data...)
		case *qstream.Command:
			b = append(append(b, byte(e.Code)), e.Data...)
		case *qstream.Tail:
			b = append(b, e.Data...)
		case *qstream.Opaque:
			b = append(b, e.Data...)
		}
	}
}

// endless repeats a PART's pages for ever.
type endless struct {
	begin, again []byte
	at           int
}

func (e *endless) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		if len(e.begin) > 0 {
			c := copy(p[n:], e.begin)
			e.begin, n = e.begin[c:], n+c
			continue
		}
		c := copy(p[n:], e.again[e.at:])
		e.at, n = (e.at+c)%len(e.again), n+c
	}
	return n, nil
}

// BenchmarkParser is the speed in bytes of memory, by the share of pages that are not zero.
func BenchmarkParser(b *testing.B) {
	for name, flags := range map[string]uint64{"full": 8, "zero": 2} {
		b.Run(name, func(b *testing.B) {
			content := make([]byte, qstream.PageSize)
			if flags == 2 {
				content = content[:1]
			}
			s := inPart().be64(flags).name("a").text(string(content))
			var again script
			for range 1000 {
				again.be64(1<<12 | 0x20 | flags).text(string(content))
			}
			p := qstream.NewParser(&endless{begin: s.Bytes(), again: again.Bytes()})
			b.SetBytes(qstream.PageSize)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := p.Next(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkWriter(b *testing.B) {
	event, err := qstream.NewParser(begun()).Next()
	if err != nil {
		b.Fatal(err)
	}
	w := qstream.NewWriter(io.Discard, event.(*qstream.Prologue))
	if err := w.Begin(); err != nil {
		b.Fatal(err)
	}
	page := make([]byte, qstream.PageSize)
	b.SetBytes(qstream.PageSize)
	b.ReportAllocs()
	for b.Loop() {
		if err := w.Page(1, page); err != nil {
			b.Fatal(err)
		}
	}
}
