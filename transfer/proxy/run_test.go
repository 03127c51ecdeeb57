package proxy

import (
	"bytes"
	"encoding/hex"
	"io"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"godwit/internal/socket"
	"godwit/transfer/encode"
	"godwit/transfer/inlet"
	"godwit/transfer/pages"
	"godwit/transfer/paths"
	"godwit/transfer/qstream"
	"godwit/transfer/wire"
)

// liar claims that the destination has some page's content.
type liar struct{ number uint64 }

func (e liar) Find(p *pages.Page) (uint64, uint64, bool) { return 1, 1, p.Number == e.number }

// aheadOf is a destination to be controlled without lanes, and what its QEMU reads.
type aheadOf struct {
	d    *Destination
	qemu net.Conn
	pro  *qstream.Prologue
	want bytes.Buffer
	w    *qstream.Writer
}

func newAheadOf(t *testing.T) *aheadOf {
	t.Helper()
	dir := t.TempDir()
	head, err := hex.DecodeString("5145564d" + "00000003" + "07" + "00000002" + "7063" + "08" + "0001" + "0000")
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := qstream.Layout([]qstream.Block{{Name: "ram", Length: 100 * 4096}})
	if err != nil {
		t.Fatal(err)
	}
	a := &aheadOf{pro: &qstream.Prologue{
		Head: head, Machine: "pc", Section: 2, Blocks: blocks, Commands: []qstream.Command{{Code: qstream.OpenReturnPath, At: len(head) - 5}},
	}}
	entrance, err := socket.Listen(filepath.Join(dir, "inlet"))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- inlet.Serve(entrance) }()
	listener, err := net.Listen("unix", filepath.Join(dir, "in"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	a.d, err = NewDestination(t.Context(), DestinationConfig{
		Identity: paths.Identity{Migration: "m-1"}, Socket: filepath.Join(dir, "in"), Mirror: dir, Inlet: filepath.Join(dir, "inlet"),
	})
	if err != nil {
		t.Fatal(err)
	}
	var prologue bytes.Buffer
	if err := qstream.NewWriter(&prologue, a.pro).Begin(); err != nil {
		t.Fatal(err)
	}
	a.say(t, wire.TopicPrologue, prologue.Bytes())
	if a.qemu, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		a.qemu.Close()
		a.d.Close()
		<-ended
	})
	a.w = qstream.NewWriter(&a.want, a.pro)
	if err := a.w.Advise(qstream.PageSize); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *aheadOf) say(t *testing.T, topic wire.Topic, body []byte) {
	t.Helper()
	if err := a.d.control(topic, body); err != nil {
		t.Fatal(err)
	}
}

func filled(number uint64) []byte { return bytes.Repeat([]byte{byte(number), 1}, 2048) }

// frame brings pages; one of them is told to be as a page that the destination never had.
func (a *aheadOf) frame(t *testing.T, number uint64, lost uint64, numbers ...uint64) (missed []uint64) {
	t.Helper()
	f := &pages.Frame{Number: number}
	for _, n := range numbers {
		f.Pages = append(f.Pages, pages.Page{Number: n, Data: filled(n), Landed: true})
	}
	body, _ := encode.NewCoder(liar{lost}, nil).Encode(nil, f, encode.Zstd1)
	missed, err := a.d.frame(number, body)
	if err != nil {
		t.Fatal(err)
	}
	return missed
}

func (a *aheadOf) tail(t *testing.T) {
	t.Helper()
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	a.say(t, wire.TopicTail, enc.EncodeAll([]byte("devicesrest"), nil))
}

// runs tells the devices and what is discarded, and lets the guest run after frame last.
func (a *aheadOf) runs(t *testing.T, last uint64, discarded ...wire.Run) {
	t.Helper()
	a.tail(t)
	a.say(t, wire.TopicDiscard, wire.AppendDiscard(nil, discarded))
	a.say(t, wire.TopicRun, wire.AppendRun(nil, wire.Start{Tail: 11, Devices: 7, Last: last}))
}

func (a *aheadOf) handed() bool {
	select {
	case <-a.d.HandedOver():
		return true
	default:
		return false
	}
}

// read wants QEMU to have read first what is wanted, then that runs are not there, the devices,
// and then pages.
func (a *aheadOf) read(t *testing.T, runs []wire.Run, late ...uint64) {
	t.Helper()
	if err := a.w.EndPart(); err != nil {
		t.Fatal(err)
	}
	after := qstream.Continue(&a.want, a.pro)
	for _, r := range runs {
		if err := after.Discard(r.First, r.Count); err != nil {
			t.Fatal(err)
		}
	}
	if err := after.Run([]byte("devices")); err != nil {
		t.Fatal(err)
	}
	for _, n := range late {
		if err := after.Page(n, filled(n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := after.EndPart(); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, a.want.Len())
	if err := a.qemu.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, err := io.ReadFull(a.qemu, got); err != nil || !bytes.Equal(got, a.want.Bytes()) {
		t.Fatalf("QEMU read %d bytes, %v; other than the %d that it should", n, err, len(got))
	}
}

// TestRunWaitsForFramesBefore: the guest may run when the frames before Run are here, and not
// earlier; pages of later frames that come before that are not lost in what QEMU discards.
func TestRunWaitsForFramesBefore(t *testing.T) {
	a := newAheadOf(t)
	a.runs(t, 2, wire.Run{First: 30, Count: 3})
	a.frame(t, 3, 99, 31) // of another lane
	a.frame(t, 2, 99, 20, 21)
	if a.handed() {
		t.Fatal("the guest may run before all is here")
	}
	a.frame(t, 1, 99, 10)
	if !a.handed() {
		t.Fatal("all is here, and the guest may not run")
	}
	if left := a.d.Absent(); left != 2 {
		t.Errorf("%d pages are not there, should be 2", left)
	}
	for _, n := range []uint64{20, 21, 10} {
		if err := a.w.Page(n, filled(n)); err != nil {
			t.Fatal(err)
		}
	}
	a.read(t, []wire.Run{{First: 30, Count: 3}}, 31)
}

// TestRunWithMissedPages: what could not be decoded of a frame before Run is not there, though
// nobody discarded it, and comes later; also where it comes before another frame does.
func TestRunWithMissedPages(t *testing.T) {
	for name, again := range map[string]bool{"sent again early": true, "not yet": false} {
		t.Run(name, func(t *testing.T) {
			a := newAheadOf(t)
			a.runs(t, 2, wire.Run{First: 30, Count: 1})
			if missed := a.frame(t, 2, 22, 21, 22); !slices.Equal(missed, []uint64{22}) {
				t.Fatalf("missed %v", missed)
			}
			var late []uint64
			if again {
				a.frame(t, 3, 99, 22)
				late = append(late, 22)
			}
			a.frame(t, 1, 99, 10)
			if !a.handed() {
				t.Fatal("all is here, and the guest may not run")
			}
			if left := int(a.d.Absent()); left != 2-len(late) { //nolint:gosec // few
				t.Errorf("%d pages are not there", left)
			}
			for _, n := range []uint64{21, 10} {
				if err := a.w.Page(n, filled(n)); err != nil {
					t.Fatal(err)
				}
			}
			a.read(t, []wire.Run{{First: 22, Count: 1}, {First: 30, Count: 1}}, late...)
		})
	}
}

// TestRunOfAnEarlierRelease: a source that tells no last frame has heard of all that was missed, and says that it is
// not there.
func TestRunOfAnEarlierRelease(t *testing.T) {
	a := newAheadOf(t)
	a.frame(t, 1, 99, 10)
	if missed := a.frame(t, 2, 22, 21, 22); !slices.Equal(missed, []uint64{22}) {
		t.Fatalf("missed %v", missed)
	}
	a.runs(t, 0, wire.Run{First: 22, Count: 1}, wire.Run{First: 30, Count: 1})
	if left := a.d.Absent(); !a.handed() || left != 2 {
		t.Errorf("%d pages are not there, should be 2; it may run: %v", left, a.handed())
	}
	for _, n := range []uint64{10, 21} {
		if err := a.w.Page(n, filled(n)); err != nil {
			t.Fatal(err)
		}
	}
	a.frame(t, 3, 99, 22)
	a.read(t, []wire.Run{{First: 22, Count: 1}, {First: 30, Count: 1}}, 22)
}

// TestLateVersionOfAMissedPage: a page could not be decoded, and then an older version of it
// comes over a slower lane. The stream does not end before the newer one has come again, and
// in post-copy the page is not there.
func TestLateVersionOfAMissedPage(t *testing.T) {
	t.Run("end", func(t *testing.T) {
		a := newAheadOf(t)
		a.tail(t)
		a.frame(t, 3, 22, 22)
		a.say(t, wire.TopicEnd, wire.AppendEnd(nil, wire.End{Last: 3, Tail: 11}))
		a.frame(t, 1, 99, 10)
		a.frame(t, 2, 99, 22)
		if a.d.written {
			t.Fatal("an older version passes for the one that was missed")
		}
		a.frame(t, 4, 99, 22)
		a.say(t, wire.TopicEnd, wire.AppendEnd(nil, wire.End{Last: 4, Tail: 11}))
		if !a.d.written {
			t.Fatal("all is here, and the stream does not end")
		}
	})
	t.Run("run", func(t *testing.T) {
		a := newAheadOf(t)
		a.runs(t, 3, wire.Run{First: 30, Count: 1})
		a.frame(t, 3, 22, 22)
		a.frame(t, 1, 99, 10)
		a.frame(t, 2, 99, 22)
		if left := a.d.Absent(); !a.handed() || left != 2 {
			t.Errorf("%d pages are not there, should be 2", left)
		}
		a.frame(t, 4, 99, 22)
		if left := a.d.Absent(); left != 1 {
			t.Errorf("%d pages are not there, should be 1", left)
		}
	})
}
