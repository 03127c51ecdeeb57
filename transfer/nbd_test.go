package transfer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
)

// nbdSaid is one reply of a handshake.
func nbdSaid(option, kind uint32, data []byte) []byte {
	b := binary.BigEndian.AppendUint64(nil, nbdReply)
	b = binary.BigEndian.AppendUint32(b, option)
	b = binary.BigEndian.AppendUint32(b, kind)
	b = binary.BigEndian.AppendUint32(b, uint32(len(data)))
	return append(b, data...)
}

func nbdExportInfo(flags uint16) []byte {
	b := binary.BigEndian.AppendUint16(nil, nbdExport)
	b = binary.BigEndian.AppendUint64(b, 200<<20)
	return binary.BigEndian.AppendUint16(b, flags)
}

var nbdHello = []byte("NBDMAGICIHAVEOPT\x00\x03")

// TestUnflushed: one bit of the handshake changes, and nothing else.
func TestUnflushed(t *testing.T) {
	talk := func(flags uint16) []byte {
		return bytes.Join([][]byte{
			nbdHello, nbdSaid(8, nbdAck, nil), nbdSaid(10, 4, []byte("\x00\x00\x00\x01base:allocation")),
			nbdSaid(nbdGo, nbdInfo, []byte{0, 3, 0, 0, 0, 1, 0, 0, 0x10, 0, 2, 0, 0, 0}), nbdSaid(nbdGo, nbdInfo, nbdExportInfo(flags)),
			nbdSaid(nbdGo, nbdAck, nil), nbdSaid(nbdGo, nbdInfo, nbdExportInfo(0xffff)), // data now, whatever it looks like
			bytes.Repeat([]byte("data"), 5000),
		}, nil)
	}
	var got bytes.Buffer
	if err := unflushed(&got, bytes.NewReader(talk(0xffff))); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), talk(0xfffb)) {
		t.Error("the handshake differs by more than the flag")
	}
}

func TestUnflushedRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		said []byte
		want string
	}{
		"not NBD":     {[]byte("HTTP/1.1 200 OK\r\nServer: x"), "not an NBD server"},
		"not a reply": {append(bytes.Clone(nbdHello), make([]byte, 20)...), "not a reply"},
		"too long":    {append(bytes.Clone(nbdHello), nbdSaid(7, 3, make([]byte, nbdLongest+1))...), "a reply of 65537 bytes"},
		"cut":         {append(bytes.Clone(nbdHello), nbdSaid(7, 3, nbdExportInfo(0))[:25]...), "unexpected EOF"},
		"silent":      {nil, "unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			var reading *readError
			err := unflushed(new(bytes.Buffer), bytes.NewReader(c.said))
			if !errors.As(err, &reading) || !strings.Contains(reading.err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func FuzzUnflushed(f *testing.F) {
	f.Add(append(bytes.Clone(nbdHello), nbdSaid(nbdGo, nbdAck, nil)...))
	f.Add(append(bytes.Clone(nbdHello), nbdSaid(nbdGo, nbdInfo, nbdExportInfo(4))...))
	f.Fuzz(func(t *testing.T, said []byte) {
		var got bytes.Buffer
		err := unflushed(&got, bytes.NewReader(said))
		if got.Len() > len(said) || err == nil && got.Len() != len(said) {
			t.Errorf("%d bytes became %d, %v", len(said), got.Len(), err)
		}
	})
}
