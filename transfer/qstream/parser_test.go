package qstream_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing"

	"godwit/transfer/qstream"
)

// script writes streams by hand.
type script struct{ bytes.Buffer }

func (s *script) raw(hexBytes string) *script {
	b, err := hex.DecodeString(strings.ReplaceAll(hexBytes, " ", ""))
	if err != nil {
		panic(err)
	}
	s.Write(b)
	return s
}

func (s *script) be64(v uint64) *script {
	s.Write(binary.BigEndian.AppendUint64(nil, v))
	return s
}

func (s *script) name(n string) *script {
	s.WriteByte(byte(len(n)))
	s.WriteString(n)
	return s
}

func (s *script) text(t string) *script { s.WriteString(t); return s }

// header is the stream before START: machine type "pc", return path, ping.
func header() *script {
	return new(script).raw("5145564d 00000003 07 00000002 7063 08 0001 0000 08 0002 0004 00000001")
}

// begun is a stream until START's end: blocks "a" of 2 pages and "b" of 1, section 7.
func begun() *script {
	s := header().raw("01 00000007").name("ram").raw("00000000 00000004").be64(3<<12 | 4)
	return s.name("a").be64(2 << 12).name("b").be64(1 << 12).be64(0x10).raw("7e 00000007")
}

// inPart is begun and the beginning of a PART.
func inPart() *script { return begun().raw("02 00000007") }

const eosFooter = "0000000000000010 7e 00000007"

func TestBadStreamsAreRefused(t *testing.T) {
	page := strings.Repeat("x", qstream.PageSize)
	for name, c := range map[string]struct {
		stream *script
		want   string
	}{
		"another magic":       {new(script).text("GODWITGODWIT"), "no migration stream"},
		"version 2":           {new(script).raw("5145564d 00000002 07 00000000"), "version 2, not 3"},
		"no configuration":    {new(script).raw("5145564d 00000003 01 00000000"), "no CONFIGURATION"},
		"long machine type":   {new(script).raw("5145564d 00000003 07 ffffffff"), "machine type of 4294967295 bytes"},
		"capability":          {new(script).raw("5145564d 00000003 07 00000002 7063 05").name("configuration/capabilities").raw("00000001 00000001").name("mapped-ram"), "mapped-ram, which is not supported"},
		"page bits":           {new(script).raw("5145564d 00000003 07 00000002 7063 05").name("configuration/target-page-bits").raw("00000001 0000000e"), "pages of 2^14 bytes"},
		"page bits, wrapping": {new(script).raw("5145564d 00000003 07 00000002 7063 05").name("configuration/target-page-bits").raw("00000001 0000004c"), "pages of 2^76 bytes"},
		"uuid twice": {new(script).raw("5145564d 00000003 07 00000002 7063 05").name("configuration/uuid").raw("00000001").be64(1).be64(2).
			raw("05").name("configuration/uuid").raw("00000001").be64(1).be64(2), "configuration/uuid twice"},
		"footer first":       {header().raw("7e 00000001"), "section type 0x7e before RAM"},
		"ping of 5 bytes":    {header().raw("08 0002 0005 0000000000"), "PING of 5 bytes, not 4"},
		"colo":               {header().raw("08 0008 0000"), "x-colo, which is not supported"},
		"post-copy":          {begun().raw("08 0007 0004 00000000"), "postcopy-ram (PACKAGED), which is not supported"},
		"RAM of version 3":   {header().raw("01 00000007").name("ram").raw("00000000 00000003"), "version 3 of RAM"},
		"no size":            {header().raw("01 00000007").name("ram").raw("00000000 00000004").be64(0x10), "a record 0x10 of RAM"},
		"no memory":          {header().raw("01 00000007").name("ram").raw("00000000 00000004").be64(4), "0 bytes of memory"},
		"endless memory":     {header().raw("01 00000007").name("ram").raw("00000000 00000004").be64(1<<63 | 4), "bytes of memory"},
		"block too long":     {header().raw("01 00000007").name("ram").raw("00000000 00000004").be64(1<<12 | 4).name("a").be64(2 << 12).be64(0x10), "with 4096 bytes of the total left"},
		"block of no pages":  {header().raw("01 00000007").name("ram").raw("00000000 00000004").be64(1<<12 | 4).name("a").be64(0).be64(0x10), "length 0"},
		"block of half":      {header().raw("01 00000007").name("ram").raw("00000000 00000004").be64(1<<12 | 4).name("a").be64(1).be64(0x10), "length 1"},
		"block without name": {header().raw("01 00000007").name("ram").raw("00000000 00000004").be64(1<<12 | 4).name("").be64(1 << 12).be64(0x10), "a name of 0 bytes"},
		"block twice":        {header().raw("01 00000007").name("ram").raw("00000000 00000004").be64(2<<12 | 4).name("a").be64(1 << 12).name("a").be64(1 << 12).be64(0x10), `block "a": twice`},
		"odd page size":      {header().raw("01 00000007").name("ram").raw("00000000 00000004").be64(1<<12 | 4).name("a").be64(1 << 12).be64(5000).be64(0x10).raw("7e 00000007"), "page size 5000"},
		"multifd in START":   {header().raw("01 00000007").name("ram").raw("00000000 00000004").be64(1<<12 | 4).name("a").be64(1 << 12).be64(0x200), "multifd, which is not supported"},
		"another footer":     {header().raw("01 00000007").name("ram").raw("00000000 00000004").be64(1<<12 | 4).name("a").be64(1 << 12).be64(0x10).raw("7e 00000008"), "no footer of section 7"},
		"page of no block":   {inPart().be64(8).name("c").text(page), `block "c", which is none`},
		"page continues":     {inPart().be64(0x28).text(page), "continues no block"},
		"page outside":       {inPart().be64(0x1008).name("b").text(page), `a page at 0x1000 of block "b"`},
		"page far outside":   {inPart().be64(0xfffffffffffff008).name("b").text(page), `of block "b"`},
		"filled":             {inPart().be64(2).name("a").raw("aa"), "filled with the byte 0xaa"},
		"xbzrle":             {inPart().be64(0x40).name("a"), "xbzrle, which is not supported"},
		"compress":           {inPart().be64(0x100).name("a"), "compress, which is not supported"},
		"multifd":            {inPart().be64(0x200), "multifd, which is not supported"},
		"rdma":               {inPart().be64(0x80), "rdma, which is not supported"},
		"sizes again":        {inPart().be64(3<<12 | 4), "a record 0x3004 of RAM"},
		"two kinds":          {inPart().be64(0x0a).name("a").raw("00"), "a record 0xa of RAM"},
		"EOS with an offset": {inPart().be64(0x1010), "a record 0x1010 of RAM"},
		"no footer":          {inPart().be64(0x10).raw("02 00000007"), "no footer of section 7"},
		"EOF before END":     {begun().raw("00 06 00000000"), "section type 0x00 before the end of RAM"},
		"cut in a page":      {inPart().be64(8).name("a").text(page[1:]), "unexpected EOF"},
		"cut between":        {inPart().raw(eosFooter), "unexpected EOF"},
		"cut in the tail":    {begun().raw("03 00000007" + eosFooter).text("devices\x00"), "unexpected EOF"},
		"many ends":          {begun().raw("03 00000007" + eosFooter).text(strings.Repeat("\x00\x06\x01\x00\x00\x00{\"", 65)), "looks like its end"},
		"empty":              {new(script), "unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			p := qstream.NewParser(bytes.NewReader(c.stream.Bytes()))
			var err error
			for err == nil {
				_, err = p.Next()
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
			var refused *qstream.RefusedError
			if errors.As(err, &refused) != (strings.Contains(c.want, "not supported") || strings.Contains(c.want, "filled") || strings.Contains(c.want, "2^")) {
				t.Errorf("error %v: refused is %v", err, refused)
			}
			if _, again := p.Next(); again != err {
				t.Errorf("then %v", again)
			}
		})
	}
}

func TestBlockContinuesOverSections(t *testing.T) {
	s := inPart().be64(2).name("b").raw("00" + eosFooter)
	s.raw("08 0002 0004 00000005")
	s.raw("02 00000007").be64(0x22).raw("00" + eosFooter)
	p := qstream.NewParser(s)
	var got []string
	for {
		event, err := p.Next()
		if err != nil {
			break
		}
		switch e := event.(type) {
		case *qstream.Page:
			got = append(got, map[bool]string{true: "zero 2"}[e.Zero && e.Number == 2])
		case *qstream.Command:
			got = append(got, e.Code.String()+hex.EncodeToString(e.Data))
		}
	}
	if strings.Join(got, ",") != "zero 2,PING00000005,zero 2" {
		t.Errorf("%q", got)
	}
}

func TestHugePagesAreFound(t *testing.T) {
	const huge = 2 << 20
	s := header().raw("01 00000007").name("ram").raw("00000000 00000004").be64(3*huge | 4)
	s.name("a").be64(huge).be64(huge).name("b").be64(huge).name("c").be64(huge).be64(huge).be64(0x10).raw("7e 00000007")
	stream := bytes.Clone(s.Bytes())
	event, err := qstream.NewParser(s).Next()
	if err != nil {
		t.Fatal(err)
	}
	blocks := event.(*qstream.Prologue).Blocks
	if blocks[0].PageSize != huge || blocks[1].PageSize != 0 || blocks[2].PageSize != huge {
		t.Errorf("%+v", blocks)
	}
	var out bytes.Buffer
	if err := qstream.NewWriter(&out, event.(*qstream.Prologue)).Begin(); err != nil || !bytes.Equal(out.Bytes(), stream) {
		t.Errorf("%v, %x became %x", err, stream, out.Bytes())
	}
}

func TestUnknownSectionsMakeTheStreamOpaque(t *testing.T) {
	for name, c := range map[string]struct {
		before *script
		opaque string
		reason string
		head   bool
		last   uint64
	}{
		"early device":      {new(script), header().raw("04 00000001").name("virtio-mem-early").text("…").String(), `section "virtio-mem-early"`, true, 0},
		"new configuration": {new(script), new(script).raw("5145564d 00000003 07 00000002 7063 05").name("configuration/new").raw("00000001").text("…").String(), `configuration "configuration/new"`, true, 0},
		"new command":       {new(script), header().raw("08 0063 0000").text("…").String(), "command 99", true, 0},
		"another START":     {inPart().be64(2).name("b").raw("00" + eosFooter), new(script).raw("01 00000009").name("dirty-bitmap").text("…").String(), `section "dirty-bitmap"`, false, 2},
		"another PART":      {inPart().be64(2).name("b").raw("00" + eosFooter), "\x02\x00\x00\x00\x09…", "a part of section 9", false, 2},
		"another END":       {inPart().be64(2).name("b").raw("00" + eosFooter), "\x03\x00\x00\x00\x09…", "a part of section 9", false, 2},
		"a late command":    {inPart().be64(2).name("b").raw("00" + eosFooter), "\x08\x00\x63\x00\x00…", "command 99", false, 2},
	} {
		t.Run(name, func(t *testing.T) {
			whole := c.before.String() + c.opaque
			p := qstream.NewParser(strings.NewReader(whole))
			var got []byte
			for {
				event, err := p.Next()
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if e, ok := event.(*qstream.Opaque); ok {
					got = append(got, e.Data...)
					if e.Reason != c.reason || e.Head != c.head || e.HasLast == c.head || e.LastPage != c.last {
						t.Errorf("%+v", e)
					}
				}
			}
			if string(got) != c.opaque {
				t.Errorf("opaque %q, want %q", got, c.opaque)
			}
			var out bytes.Buffer
			if err := copyStream(&out, strings.NewReader(whole)); err != nil || out.String() != whole {
				t.Errorf("%v: %q became %q", err, whole, out.String())
			}
		})
	}
}
