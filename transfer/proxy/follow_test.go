package proxy_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"godwit/internal/socket"
	"godwit/transfer/encode/visit"
	"godwit/transfer/inlet"
	"godwit/transfer/proxy"
	"godwit/transfer/qstream"
)

// follower loads a stream of which the rest follows, as a QEMU does: what was discarded comes once, and is asked for
// now and then.
type follower struct {
	r       *bufio.Reader
	conn    net.Conn
	blocks  qstream.Blocks
	block   int
	memory  [fakePages][]byte
	missing map[uint64]bool
	runs    bool
	loads   []uint64 // pages that it reads as it loads its devices
}

// bytes are the next n; at the end of the stream load ends.
func (f *follower) bytes(n int) []byte {
	b := make([]byte, n)
	if _, err := io.ReadFull(f.r, b); err != nil {
		panic(err)
	}
	return b
}

func (f *follower) u64() uint64 { return binary.BigEndian.Uint64(f.bytes(8)) }

// load returns when the stream has ended.
func (f *follower) load(conn net.Conn) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("load: %v", r)
		}
	}()
	f.conn, f.r = conn, bufio.NewReaderSize(conn, 1<<20)
	f.bytes(4 + 4 + 1 + 4 + 2) // until the first command
	if _, err := conn.Write(qstream.AppendMessage(nil, qstream.SwitchoverAck, nil)); err != nil {
		return err
	}
	for {
		kind := f.bytes(1)[0]
		switch kind {
		case 1: // START
			f.bytes(4 + 1 + 3 + 8 + 8)
			for _, b := range f.blocks {
				f.bytes(1 + len(b.Name) + 8)
			}
			f.bytes(8 + 5)
		case 2, 3: // PART, END
			f.bytes(4)
			if err := f.part(); err != nil {
				return err
			}
			f.bytes(5)
		case 8:
			if err := f.command(); err != nil {
				return err
			}
		default:
			return fmt.Errorf("section %d", kind)
		}
		if kind == 3 {
			return f.ended()
		}
	}
}

// ended says so, where it should be the end.
func (f *follower) ended() error {
	if !f.runs || f.bytes(1)[0] != 0 || len(f.missing) > 0 {
		return fmt.Errorf("the end, and %d pages are missing; it runs: %v", len(f.missing), f.runs)
	}
	_, err := f.conn.Write(qstream.AppendMessage(nil, qstream.Shut, make([]byte, 4)))
	return err
}

// command notes what is discarded, and lets the guest run.
func (f *follower) command() error {
	head := f.bytes(4)
	data := f.bytes(int(binary.BigEndian.Uint16(head[2:])))
	switch qstream.CommandCode(binary.BigEndian.Uint16(head)) {
	case qstream.PostcopyDiscard:
		name := string(data[2 : 2+data[1]])
		for rest := data[3+data[1]:]; len(rest) > 0; rest = rest[16:] {
			first, count, err := f.blocks.Range(name, binary.BigEndian.Uint64(rest), uint32(binary.BigEndian.Uint64(rest[8:])))
			if err != nil {
				return err
			}
			for page := first; page < first+count; page++ {
				f.missing[page], f.memory[page] = true, nil
			}
		}
	case qstream.Packaged:
		f.bytes(int(binary.BigEndian.Uint32(data)))
		for _, page := range f.loads {
			if f.missing[page] {
				return fmt.Errorf("page %d is missing as devices are loaded", page)
			}
		}
		f.runs = true
		go f.ask()
	}
	return nil
}

// ask asks for some pages, of which most are missing.
func (f *follower) ask() {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		i, offset, _ := f.blocks.Find(rng.Uint64N(fakePages))
		name := f.blocks[i].Name
		data := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, uint64(offset)), 4096)
		data = append(append(data, byte(len(name))), name...)
		if _, err := f.conn.Write(qstream.AppendMessage(nil, qstream.ReqPagesID, data)); err != nil {
			return
		}
		if rng.IntN(5) == 0 {
			time.Sleep(time.Duration(rng.IntN(8000)) * time.Microsecond)
		}
	}
}

// part takes the pages of a section.
func (f *follower) part() error {
	for {
		word := f.u64()
		flags, offset := word&4095, word&^4095
		if flags == 0x10 {
			return nil
		}
		if flags&0x20 == 0 {
			if f.block = f.blocks.Index(string(f.bytes(int(f.bytes(1)[0])))); f.block < 0 {
				return errors.New("a block that there is not")
			}
		}
		page, data := f.blocks[f.block].First+offset/4096, make([]byte, 4096)
		if flags&8 != 0 {
			data = f.bytes(4096)
		} else if f.bytes(1)[0] != 0 {
			return errors.New("a page that is not zeros")
		}
		if f.runs && !f.missing[page] {
			return fmt.Errorf("page %d, which is not missing", page)
		}
		delete(f.missing, page)
		f.memory[page] = data
	}
}

// TestRestIsWhole hands guests over before their pages are there: some are missed, as the destination has not any more
// what it offered, lanes die, and the guest asks for pages in any order. Each page comes once, in its newest version.
func TestRestIsWhole(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { restIsWhole(t, rand.New(rand.NewPCG(seed, 7))) })
	}
}

// keptPages is how many pages the destination has from elsewhere, at first.
const keptPages = 600

func restIsWhole(t *testing.T, rng *rand.Rand) {
	dir := t.TempDir()
	kept := make([]byte, keptPages*4096)
	noise(rng, kept)
	file := filepath.Join(dir, "kept")
	if err := os.WriteFile(file, kept, 0o600); err != nil {
		t.Fatal(err)
	}
	elsewhere, err := visit.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	entrance, err := socket.Listen(filepath.Join(dir, "inlet"))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- inlet.Serve(entrance) }()
	guest := &follower{blocks: fakePrologue(t).Blocks, missing: map[uint64]bool{}}
	f := newFakesTo(t, 0, guest.load, proxy.DestinationConfig{Inlet: filepath.Join(dir, "inlet"), Elsewhere: []*visit.File{elsewhere}},
		proxy.SourceConfig{Postcopy: true})
	f.copiedOnce(t, rng, kept, file)
	f.src.AllowSwitchover()
	if rng.IntN(2) == 0 {
		f.src.Drain(t.Context())
	}
	if !f.src.PostCopy() {
		t.Fatal("the rest cannot follow")
	}
	f.limit.Set(1<<20 + rng.Int64N(2<<20))
	for range rng.IntN(300) { // the last round
		f.write(t, rng, kept, rng.Uint64N(fakePages))
	}
	if err := errors.Join(f.from.w.End(), f.from.w.Tail(fakeTail())); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		time.Sleep(time.Duration(rng.IntN(60)) * time.Millisecond)
		u := f.uplinks[rng.IntN(3)]
		u.set(true)
		u.set(false)
	}
	select {
	case <-f.to.done:
		f.to.memory = guest.memory
	case <-time.After(2 * hang):
	}
	f.settle(t)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// copiedOnce are some rounds in which lanes break; what was offered is not there any more then.
func (f *fakes) copiedOnce(t *testing.T, rng *rand.Rand, kept []byte, file string) {
	t.Helper()
	if err := f.from.w.Begin(); err != nil {
		t.Fatal(err)
	}
	for round := range 7 {
		for page := range uint64(fakePages) {
			if round == 0 || page%97 < 5 && rng.IntN(3) > 0 || rng.IntN(40) == 0 {
				f.write(t, rng, kept, page)
			}
		}
		if err := f.from.w.EndPart(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(rng.IntN(10)) * time.Millisecond)
		f.breakOne(rng)
		if round == 0 {
			if err := os.WriteFile(file, bytes.Repeat(kept[:len(kept)/2], 2), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, u := range f.uplinks {
		u.set(false)
	}
}

// write is fakeSource.write, or of a page that the destination had from elsewhere.
func (f *fakes) write(t *testing.T, rng *rand.Rand, kept []byte, page uint64) {
	t.Helper()
	if rng.IntN(3) > 0 {
		f.from.write(t, rng, page)
		return
	}
	f.from.memory[page] = kept[rng.IntN(keptPages)*4096:][:4096]
	if err := f.from.w.Page(page, f.from.memory[page]); err != nil {
		t.Fatal(err)
	}
}
