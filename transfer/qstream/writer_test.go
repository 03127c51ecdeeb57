package qstream_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"godwit/transfer/qstream"
)

// begin returns a writer of begun's prologue.
func begin(t *testing.T, out *bytes.Buffer) *qstream.Writer {
	t.Helper()
	event, err := qstream.NewParser(begun()).Next()
	if err != nil {
		t.Fatal(err)
	}
	return qstream.NewWriter(out, event.(*qstream.Prologue))
}

// TestPostcopyIsWrittenAsQEMUReadsIt has the bytes of a whole post-copy, see the package
// comment. Blocks are "a" of pages 0 and 1, "b" of page 2; the section is 7.
func TestPostcopyIsWrittenAsQEMUReadsIt(t *testing.T) {
	var out bytes.Buffer
	w := begin(t, &out)
	err := errors.Join(
		w.Advise(qstream.PageSize), w.Zero(0), w.Discard(1, 2), w.Run([]byte("devices")),
		w.Zero(2), w.Zero(1), w.Finish(),
	)
	if err != nil {
		t.Fatal(err)
	}
	want := new(script).raw("5145564d 00000003 07 00000002 7063 08 0001 0000")
	want.raw("08 0003 0010").be64(4096).be64(4096).raw("08 0002 0004 00000001")
	want.Write(begun().Bytes()[header().Len():])
	want.raw("02 00000007").be64(2).name("a").raw("00" + eosFooter)
	want.raw("08 0006 0014 00").name("a").raw("00").be64(4096).be64(4096)
	want.raw("08 0006 0014 00").name("b").raw("00").be64(0).be64(4096)
	want.raw("08 0007 0004 00000011 08 0004 0000").text("devices").raw("08 0005 0000")
	want.raw("02 00000007").be64(2).name("b").raw("00").be64(0x1002).name("a").raw("00" + eosFooter)
	want.raw("03 00000007" + eosFooter + "00")
	if i := differ(out.Bytes(), want.Bytes()); i >= 0 {
		t.Errorf("got\n%s\nwant\n%s", hex.Dump(out.Bytes()), hex.Dump(want.Bytes()))
	}
}

func TestDiscardsAreSplit(t *testing.T) {
	blocks, err := qstream.Layout([]qstream.Block{{Name: "big", Length: 100 << 12}})
	if err != nil {
		t.Fatal(err)
	}
	pro := qstream.Prologue{Head: []byte("h"), Blocks: blocks, Commands: []qstream.Command{{Code: qstream.PostcopyAdvise, Data: make([]byte, 16)}}}
	var out bytes.Buffer
	w := qstream.NewWriter(&out, &pro)
	if err := w.Begin(); err != nil {
		t.Fatal(err)
	}
	before := out.Len()
	for i := range 25 {
		if err := w.Discard(uint64(4*i), 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Run(nil); err != nil {
		t.Fatal(err)
	}
	var entries []int
	for b := out.Bytes()[before:]; b[2] == 6; {
		n := int(b[3])<<8 | int(b[4])
		entries = append(entries, (n-6)/16)
		b = b[5+n:]
		if b[2] != 6 && b[2] != 7 {
			t.Fatalf("command %d", b[2])
		}
	}
	if len(entries) != 3 || entries[0] != 12 || entries[1] != 12 || entries[2] != 1 {
		t.Errorf("ranges in commands: %v", entries)
	}
}

func TestWriterKeepsTheOrder(t *testing.T) {
	page := make([]byte, qstream.PageSize)
	type calls = []func(w *qstream.Writer) error
	start := func(w *qstream.Writer) error { return w.Begin() }
	advise := func(w *qstream.Writer) error { return w.Advise(qstream.PageSize) }
	end := func(w *qstream.Writer) error { return w.End() }
	discard := func(w *qstream.Writer) error { return w.Discard(0, 1) }
	run := func(w *qstream.Writer) error { return w.Run(nil) }
	for name, c := range map[string]struct {
		before calls
		last   func(w *qstream.Writer) error
		want   string
	}{
		"page first":           {nil, func(w *qstream.Writer) error { return w.Page(0, page) }, "a page before Begin"},
		"begin twice":          {calls{start}, start, "Begin within RAM"},
		"tail too early":       {calls{start}, func(w *qstream.Writer) error { return w.Tail(nil) }, "a tail within RAM"},
		"page after END":       {calls{start, end}, func(w *qstream.Writer) error { return w.Zero(0) }, "a page after End"},
		"no such page":         {calls{start}, func(w *qstream.Writer) error { return w.Zero(3) }, "page 3 of 3"},
		"half a page":          {calls{start}, func(w *qstream.Writer) error { return w.Page(0, page[1:]) }, "a page of 4095 bytes"},
		"discard unadvised":    {calls{start}, discard, "Discard without Advise"},
		"discard too many":     {calls{advise}, func(w *qstream.Writer) error { return w.Discard(1, 3) }, "discard 3 pages from 1 of 3"},
		"discard none":         {calls{advise}, func(w *qstream.Writer) error { return w.Discard(1, 0) }, "discard 0 pages"},
		"discard, wrapping":    {calls{advise}, func(w *qstream.Writer) error { return w.Discard(1<<64-1, 2) }, "discard 2 pages"},
		"run without discard":  {calls{advise}, run, "Run without Discard"},
		"page after discard":   {calls{advise, discard}, func(w *qstream.Writer) error { return w.Zero(1) }, "a page between Discard and Run"},
		"end after discard":    {calls{advise, discard}, end, "End after Discard"},
		"end of post-copy":     {calls{advise, discard, run}, end, "End after Run"},
		"finish before run":    {calls{advise, discard}, func(w *qstream.Writer) error { return w.Finish() }, "Finish within RAM"},
		"discard after run":    {calls{advise, discard, run}, discard, "Discard after Run"},
		"command after run":    {calls{advise, discard, run}, func(w *qstream.Writer) error { return w.Command(qstream.Ping, page[:4]) }, "a command after Run"},
		"opaque after the end": {calls{start, end}, func(w *qstream.Writer) error { return w.Opaque(nil) }, "something opaque after End"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			w := begin(t, &out)
			for _, call := range c.before {
				if err := call(w); err != nil {
					t.Fatal(err)
				}
			}
			_ = w.Flush()
			n := out.Len()
			err := c.last(w)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
			if _ = w.Flush(); out.Len() != n {
				t.Errorf("%d bytes were written", out.Len()-n)
			}
		})
	}
}

func TestPostcopyNeedsAReturnPath(t *testing.T) {
	open := qstream.Command{Code: qstream.OpenReturnPath}
	for want, commands := range map[string][]qstream.Command{
		"return path":   nil,
		"dirty-bitmaps": {open, {Code: qstream.PostcopyAdvise}},
		"beyond":        {open},
	} {
		w := qstream.NewWriter(new(bytes.Buffer), &qstream.Prologue{Head: []byte("x"), Commands: commands})
		if err := w.Advise(qstream.PageSize); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// full takes some bytes, then no more.
type full struct{ left int }

func (f *full) Write(p []byte) (int, error) {
	if f.left < len(p) {
		return 0, errors.New("disk full")
	}
	f.left -= len(p)
	return len(p), nil
}

func TestWriteErrorsAreToldInTheEnd(t *testing.T) {
	event, err := qstream.NewParser(begun()).Next()
	if err != nil {
		t.Fatal(err)
	}
	w := qstream.NewWriter(&full{200}, event.(*qstream.Prologue))
	if err := w.Begin(); err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		if err = w.Page(1, make([]byte, qstream.PageSize)); err != nil {
			break
		}
	}
	if err == nil || w.EndPart() == nil || w.End() == nil {
		t.Error(err)
	}
}

func TestLayoutRefuses(t *testing.T) {
	ok := qstream.Block{Name: "a", Length: 4096}
	for name, list := range map[string][]qstream.Block{
		"no name":    {{Length: 4096}},
		"long name":  {{Name: strings.Repeat("n", 256), Length: 4096}},
		"twice":      {ok, ok},
		"empty":      {{Name: "a"}},
		"negative":   {{Name: "a", Length: -4096}},
		"half":       {{Name: "a", Length: 2048}},
		"too much":   {{Name: "a", Length: qstream.MaxMemory}, {Name: "b", Length: 4096}},
		"page size":  {{Name: "a", Length: 4096, PageSize: 5000}},
		"small page": {{Name: "a", Length: 4096, PageSize: 1024}},
		"too many":   make([]qstream.Block, qstream.MaxBlocks+1),
	} {
		if blocks, err := qstream.Layout(list); err == nil {
			t.Errorf("%s: %+v", name, blocks)
		}
	}
}

// TestFindIsACount compares with going through all blocks.
func TestFindIsACount(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 0))
	for range 200 {
		var list []qstream.Block
		for i := range random.IntN(8) {
			list = append(list, qstream.Block{Name: string(rune('a' + i)), Length: int64(1+random.IntN(5)) << 12})
		}
		blocks, err := qstream.Layout(list)
		if err != nil {
			t.Fatal(err)
		}
		var page uint64
		for i, b := range list {
			for offset := int64(0); offset < b.Length; offset += 4096 {
				if block, at, ok := blocks.Find(page); block != i || at != offset || !ok {
					t.Fatalf("%+v: page %d is at %d of %d, %v", blocks, page, at, block, ok)
				}
				page++
			}
		}
		if _, _, ok := blocks.Find(page); ok || blocks.Pages() != page {
			t.Fatalf("%+v: %d pages, found one more", blocks, blocks.Pages())
		}
	}
}
