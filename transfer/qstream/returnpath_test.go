package qstream_test

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"godwit/transfer/qstream"
)

func TestReturnPath(t *testing.T) {
	in := "\x00\x02\x00\x04\x00\x00\x00\x01" +
		"\x00\x03\x00\x13\x00\x00\x00\x00\x00\x00\x10\x00\x00\x00\x20\x00\x06pc.ram" +
		"\x00\x04\x00\x0c\x00\x00\x00\x00\x00\x00\x50\x00\x00\x00\x10\x00" +
		"\x00\x07\x00\x00" +
		"\x00\x01\x00\x04\x00\x00\x00\x05"
	p := qstream.NewReturnPath(strings.NewReader(in))
	var raw []byte
	var got []qstream.Message
	for {
		m, err := p.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		raw = append(raw, m.Raw...)
		m.Raw = nil
		got = append(got, m)
	}
	want := []qstream.Message{
		{Type: qstream.Pong, Value: 1},
		{Type: qstream.ReqPagesID, Block: "pc.ram", Offset: 0x1000, Length: 0x2000},
		{Type: qstream.ReqPages, Block: "pc.ram", Offset: 0x5000, Length: 0x1000},
		{Type: qstream.SwitchoverAck},
		{Type: qstream.Shut, Value: 5},
	}
	if len(got) != len(want) || string(raw) != in {
		t.Fatalf("%+v, %q", got, raw)
	}
	for i := range want {
		a, b := got[i], want[i]
		if a.Type != b.Type || a.Value != b.Value || a.Block != b.Block || a.Offset != b.Offset || a.Length != b.Length {
			t.Errorf("%+v, want %+v", a, b)
		}
	}
}

func TestBadMessages(t *testing.T) {
	for in, want := range map[string]string{
		"\x00\x09\x00\x00": "unknown message type 9",
		"\x00\x00\x00\x00": "unknown message type 0",
		"\x00\x01\x00\x03": "3 bytes, not 4 to 4",
		"\x00\x03\xff\xff": "65535 bytes, not 14 to 268",
		"\x00\x05\x00\x04": "RECV_BITMAP",
		"\x00\x03\x00\x0e\x00\x00\x00\x00\x00\x00\x10\x00\x00\x00\x20\x00\x06p": "a block's name of 6 bytes in 1",
		"\x00\x02\x00\x04ab": "unexpected EOF",
		"\x00\x02\x00\x04":   "unexpected EOF",
		"\x00\x02":           "unexpected EOF",
	} {
		if m, err := qstream.NewReturnPath(strings.NewReader(in)).Next(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v; want %q", in, m, err, want)
		}
	}
}

func TestRequestsAreChecked(t *testing.T) {
	blocks, err := qstream.Layout([]qstream.Block{{Name: "a", Length: 2 << 12}, {Name: "b", Length: 4 << 12}})
	if err != nil {
		t.Fatal(err)
	}
	if first, count, err := blocks.Range("b", 1<<12, 3<<12); err != nil || first != 3 || count != 3 {
		t.Errorf("%d, %d, %v", first, count, err)
	}
	for _, c := range []struct {
		name   string
		offset uint64
		length uint32
	}{{"", 0, 1 << 12}, {"c", 0, 1 << 12}, {"b", 1, 1 << 12}, {"b", 0, 1}, {"b", 0, 0}, {"b", 0, 5 << 12}, {"b", 4 << 12, 1 << 12}, {"b", 1<<64 - 1<<12, 2 << 12}} {
		if first, count, err := blocks.Range(c.name, c.offset, c.length); err == nil {
			t.Errorf("%+v: %d, %d", c, first, count)
		}
	}
}

func FuzzReturnPath(f *testing.F) {
	f.Add([]byte("\x00\x02\x00\x04\x00\x00\x00\x01\x00\x07\x00\x00\x00\x01\x00\x04\x00\x00\x00\x05"))
	f.Add([]byte("\x00\x03\x00\x13\x00\x00\x00\x00\x00\x00\x10\x00\x00\x00\x20\x00\x06pc.ram\x00\x04\x00\x0c\x00\x00\x00\x00\x00\x00\x50\x00\x00\x00\x10\x00"))
	f.Fuzz(func(t *testing.T, in []byte) {
		p := qstream.NewReturnPath(bytes.NewReader(in))
		var out []byte
		for {
			m, err := p.Next()
			if err != nil {
				break
			}
			out = qstream.AppendMessage(out, m.Type, m.Raw[4:])
			if len(m.Block) > 255 {
				t.Errorf("block %q", m.Block)
			}
		}
		if !bytes.HasPrefix(in, out) {
			t.Errorf("%x became %x", in, out)
		}
	})
}
