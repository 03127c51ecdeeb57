package nbd

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
)

// held is a store in memory that fails where it is told to.
type held struct {
	data  []byte
	fails error
}

func (h *held) ReadAt(p []byte, at int64) (int, error) { return copy(p, h.data[at:]), h.fails }

func (h *held) WriteAt(p []byte, at int64) (int, error) {
	if h.fails != nil {
		return 0, h.fails
	}
	return copy(h.data[at:], p), nil
}

func (h *held) Zero(at, length int64) error {
	if h.fails == nil {
		clear(h.data[at : at+length])
	}
	return h.fails
}

// told is a request with what it carries.
func told(kind uint16, at uint64, length uint32, data string) []byte {
	b := binary.BigEndian.AppendUint32(nil, requestMagic)
	b = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, 0), kind)
	b = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, 0xc00c1e), at)
	return append(binary.BigEndian.AppendUint32(b, length), data...)
}

// begun is a server of h that has granted it.
func begun(t *testing.T, h *held, heard *Digest) (conn net.Conn, ended <-chan error) {
	t.Helper()
	conn, there := net.Pipe()
	end := make(chan error, 1)
	go func() { end <- Serve(there, "disk0", uint64(len(h.data)), h, heard); there.Close() }()
	t.Cleanup(func() { conn.Close() })
	got, err := Ask(conn, "disk0")
	if err != nil || got.Size != uint64(len(h.data)) || !got.Structured || got.Allocation {
		t.Fatalf("%+v, %v", got, err)
	}
	return conn, end
}

// answered is what a server says to a request.
func answered(t *testing.T, conn net.Conn, ask []byte, length int) []byte {
	t.Helper()
	if _, err := conn.Write(ask); err != nil {
		t.Fatal(err)
	}
	reply := make([]byte, length)
	if _, err := io.ReadFull(conn, reply); err != nil {
		t.Fatal(err)
	}
	return reply
}

// TestServe: what is written is in the store, and heard as it is there; a request beyond the store, or of no
// known kind, is refused and changes nothing; a store that fails is told of by its error.
func TestServe(t *testing.T) {
	const simple = 16
	h, heard, sent := &held{data: bytes.Repeat([]byte{'x'}, 4096)}, &Digest{}, &Digest{}
	conn, ended := begun(t, h, heard)
	for _, c := range []struct {
		name  string
		ask   []byte
		fails error
		errno uint32
	}{
		{"write", told(cmdWrite, 8, 5, "hello"), nil, 0},
		{"zeroes", told(cmdWriteZeroes, 10, 2, ""), nil, 0},
		{"trim", told(cmdTrim, 4000, 96, ""), nil, 0},
		{"to the last byte", told(cmdWrite, 4095, 1, "e"), nil, 0},
		{"one byte too far", told(cmdWrite, 4095, 2, "ef"), nil, errnoInvalid},
		{"far away", told(cmdWriteZeroes, 1<<63, 1<<31, ""), nil, errnoInvalid},
		{"no such request", told(99, 0, 0, ""), nil, errnoInvalid},
		{"full", told(cmdWrite, 0, 1, "f"), syscall.ENOSPC, errnoNoSpace},
		{"beyond its quota", told(cmdWrite, 0, 1, "f"), syscall.EDQUOT, errnoNoSpace},
		{"larger than a file may be", told(cmdWrite, 0, 1, "f"), syscall.EFBIG, errnoNoSpace},
		{"broken", told(cmdTrim, 0, 1, ""), syscall.EIO, errnoIO},
	} {
		h.fails = c.fails
		reply := answered(t, conn, c.ask, simple)
		if binary.BigEndian.Uint32(reply) != simpleMagic || binary.BigEndian.Uint32(reply[4:]) != c.errno || binary.BigEndian.Uint64(reply[8:]) != 0xc00c1e {
			t.Errorf("%s: %x", c.name, reply)
		}
		if c.errno == 0 {
			sent.Write(c.ask)
			if !bytes.Equal(sent.Sum(), heard.Sum()) {
				t.Errorf("%s: another was heard than was sent", c.name)
			}
		} else {
			*sent, *heard = Digest{}, Digest{}
		}
	}
	h.fails = nil
	reply := answered(t, conn, told(cmdRead, 6, 8, ""), 20+8+8)
	if head, data := reply[:28], string(reply[28:]); binary.BigEndian.Uint32(head) != chunkMagic || head[5] != chunkDone || head[7] != chunkOffset || binary.BigEndian.Uint64(head[20:]) != 6 || data != "xxhe\x00\x00ox" {
		t.Errorf("read: %x %q", head, data)
	}
	if reply := answered(t, conn, told(cmdRead, 4090, 7, ""), 20+6); binary.BigEndian.Uint16(reply[6:]) != chunkError || binary.BigEndian.Uint32(reply[20:]) != errnoInvalid {
		t.Errorf("read too far: %x", reply)
	}
	if want := "xxxxxxxxhe\x00\x00o"; string(h.data[:13]) != want || h.data[4095] != 'e' || h.data[4001] != 0 {
		t.Errorf("the store has %q", h.data[:13])
	}
	if _, err := conn.Write(told(cmdDisconnect, 0, 0, "")); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("after a farewell: %v", err)
	}
}

// forgets is a store that has not what it took.
type forgets struct{ held }

func (*forgets) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }

// TestServeHearsWhatIsThere: where the store has not what came, what is heard is not what was sent.
func TestServeHearsWhatIsThere(t *testing.T) {
	here, there := net.Pipe()
	var heard, sent Digest
	go Serve(there, "disk0", 64, &forgets{held{data: make([]byte, 64)}}, &heard) //nolint:errcheck // it ends with the connection
	defer here.Close()
	if _, err := Ask(here, "disk0"); err != nil {
		t.Fatal(err)
	}
	ask := told(cmdWrite, 0, 5, "hello")
	sent.Write(ask)
	answered(t, here, ask, 16)
	if bytes.Equal(sent.Sum(), heard.Sum()) {
		t.Error("heard what the store does not have")
	}
}

// TestServeEnds: a client that is no client, or asks for too much, ends it.
func TestServeEnds(t *testing.T) {
	for name, c := range map[string]struct {
		says []byte
		want string
	}{
		"nothing":   {nil, ""},
		"noise":     {make([]byte, 28), "not an NBD request"},
		"too long":  {told(cmdWrite, 0, longestRequest+1, ""), "an NBD request with 33554433 bytes"},
		"cut short": {told(cmdWrite, 0, 10, "hello"), "unexpected EOF"},
	} {
		conn, ended := begun(t, &held{data: make([]byte, 64)}, &Digest{})
		conn.Write(c.says) //nolint:errcheck // it may have ended already
		conn.Close()
		if err := <-ended; (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func FuzzServe(f *testing.F) {
	grant := bytes.Join([][]byte{{0, 0, 0, 3}, appendOption(nil, optStructured, nil), appendOption(nil, optGo, append(appendString(nil, "disk0"), 0, 0))}, nil)
	f.Add(told(cmdWrite, 8, 5, "hello"), uint16(64))
	f.Add(bytes.Join([][]byte{told(cmdRead, 1<<63, 1<<31, ""), told(cmdTrim, 60, 8, ""), told(cmdDisconnect, 0, 0, "")}, nil), uint16(64))
	f.Fuzz(func(t *testing.T, said []byte, size uint16) {
		h := &held{data: make([]byte, size)}
		if err := Serve(saying{bytes.NewReader(append(bytes.Clone(grant), said...))}, "disk0", uint64(size), h, &Digest{}); errors.Is(err, io.EOF) {
			t.Error("a clean end in the middle")
		}
	})
}
