package record

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

func TestHeaderGolden(t *testing.T) {
	var b [HeaderSize]byte
	Header{Kind: Ack, Flags: Corrupt, Length: 0x010203, Number: 0x0405060708090a0b}.Put(b[:])
	want := []byte{0x67, 4, 1, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}
	if !bytes.Equal(b[:16], want) {
		t.Errorf("header %x, want %x", b[:16], want)
	}
	if _, ok := Parse(b[:]); ok {
		t.Error("a payload of more than MaxPayload was taken")
	}
	Header{Kind: Data, Length: 5, Number: 6}.Put(b[:])
	h, ok := Parse(b[:])
	if !ok || h != (Header{Kind: Data, Length: 5, Number: 6}) {
		t.Errorf("read back %+v, %v", h, ok)
	}
	for i := range b {
		b[i] ^= 0x10
		if _, ok := Parse(b[:]); ok {
			t.Errorf("byte %d was changed unseen", i)
		}
		b[i] ^= 0x10
	}
}

func TestPayloadsDiffer(t *testing.T) {
	for _, n := range []uint64{0, 1, 12345, 1 << 40} {
		p := Payload(7, n, 1000)
		if !Intact(7, n, p) || Intact(7, n+1, p) || Intact(8, n, p) {
			t.Errorf("record %d is not told from its neighbours", n)
		}
		for i := range p {
			c := bytes.Clone(p)
			c[i] ^= 1
			if Intact(7, n, c) {
				t.Fatalf("record %d: byte %d was changed unseen", n, i)
			}
		}
	}
	if len(Payload(1<<32-1, 1<<64-1, MaxPayload)) != MaxPayload {
		t.Error("the largest record is short")
	}
}

type seen struct {
	Number  uint64
	Length  int
	Skipped int
}

func readAll(t *testing.T, r *Reader) []seen {
	t.Helper()
	var out []seen
	for {
		f, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, seen{f.Number, len(f.Payload), f.Skipped})
	}
}

func TestReaderTakesPiecesAndSkipsGarbage(t *testing.T) {
	stream := []byte("hello\n")
	stream = Append(stream, Data, 0, Payload(0, 0, 3000))
	stream = append(stream, "garbage g g"...)
	stream = Append(stream, Data, 1, nil)
	broken := len(stream)
	stream = Append(stream, Data, 2, Payload(0, 2, 100))
	stream[broken+9] ^= 1
	stream = Append(stream, Data, 3, Payload(0, 3, 4076))
	want := []seen{{0, 3000, 0}, {1, 0, 11}, {3, 4076, HeaderSize + 100}}
	for name, src := range map[string]io.Reader{
		"at once": bytes.NewReader(stream), "bytes": iotest.OneByteReader(bytes.NewReader(stream)),
		"halves": iotest.HalfReader(bytes.NewReader(stream)),
	} {
		r := NewReader(src, 4096, func() int64 { return 1 })
		if line, err := r.Line(10); err != nil || string(line) != "hello" {
			t.Fatalf("%s: line %q, %v", name, line, err)
		}
		if diff := cmp.Diff(want, readAll(t, r)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestReaderGrowKeepsWhatItHas(t *testing.T) {
	stream := Append(nil, Data, 1, Payload(0, 1, 10))
	stream = Append(stream, Data, 2, Payload(0, 2, 50000))
	r := NewReader(bytes.NewReader(stream), 100, func() int64 { return 1 })
	if f, err := r.Next(); err != nil || f.Number != 1 {
		t.Fatal(f.Number, err)
	}
	if got := readAll(t, r.Grow(1<<17)); len(got) != 1 || got[0] != (seen{2, 50000, 0}) {
		t.Errorf("after growing: %v", got)
	}
}

func TestEndlessGarbageIsAnError(t *testing.T) {
	r := NewReader(bytes.NewReader(make([]byte, 2*maxGarbage)), 4096, func() int64 { return 1 })
	if _, err := r.Next(); !errors.Is(err, ErrGarbage) {
		t.Errorf("error %v", err)
	}
	r = NewReader(bytes.NewReader(make([]byte, 5000)), 4096, func() int64 { return 1 })
	if _, err := r.Line(MaxHello); err == nil {
		t.Error("a line without end was taken")
	}
}

func FuzzReader(f *testing.F) {
	f.Add(Append([]byte("x"), Data, 1, []byte("abc")), 64)
	f.Fuzz(func(t *testing.T, stream []byte, size int) {
		size = HeaderSize + max(0, size)%5000
		r := NewReader(bytes.NewReader(stream), size, func() int64 { return 1 })
		total := 0
		for {
			fr, err := r.Next()
			if err != nil {
				break
			}
			total += fr.Skipped + HeaderSize + len(fr.Payload)
		}
		if total > len(stream) {
			t.Errorf("%d bytes from a stream of %d", total, len(stream))
		}
	})
}

func FuzzHello(f *testing.F) {
	f.Add(Hello{Seed: 1, Size: 100, Every: 1e7, Rate: 5}.Line())
	f.Fuzz(func(t *testing.T, line []byte) {
		h, err := ParseHello(line)
		if err != nil {
			return
		}
		if h.Size < 1 || h.Size > MaxPayload {
			t.Errorf("size %d was taken", h.Size)
		}
		again, err := ParseHello(h.Line())
		if err != nil || again != h {
			t.Errorf("%+v became %+v, %v", h, again, err)
		}
	})
}
