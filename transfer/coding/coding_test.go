package coding

import (
	"bytes"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func noise(n int) []byte {
	out := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	r.Read(out) //nolint:errcheck // it has no error
	return out
}

func text(n int) []byte {
	return []byte(strings.Repeat("a line of a file, as many disks hold them: "+string(noise(8))+"\n", n/50+1)[:n])
}

// TestStream: what is written is read, byte for byte, each piece at once and at every level.
func TestStream(t *testing.T) {
	for level := Off; int(level) < levels; level++ {
		t.Run(level.String(), func(t *testing.T) {
			out, in := io.Pipe()
			defer out.Close()
			w := NewWriter(in)
			w.choice.level = level
			r, err := Reader(out)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range [][]byte{[]byte("a"), text(100_000), noise(3), noise(Window), text(2*Window + 1), noise(128 << 10), []byte("end")} {
				written := make(chan error, 1)
				go func() {
					_, err := w.Write(want)
					written <- err
				}()
				got := make([]byte, len(want))
				if _, err := io.ReadFull(r, got); err != nil || !bytes.Equal(got, want) {
					t.Fatalf("of %d bytes came others: %v", len(want), err)
				}
				if err := <-written; err != nil {
					t.Fatal(err)
				}
			}
			go in.Close()
			if n, err := r.Read(make([]byte, 1)); n != 0 || err != io.EOF {
				t.Errorf("at its end: %d bytes, %v", n, err)
			}
		})
	}
}

// TestPacks: what can be packed is, at every level but Off, and what cannot takes little more than it has.
func TestPacks(t *testing.T) {
	for level := Off; int(level) < levels; level++ {
		for what, c := range map[string]struct {
			plain []byte
			most  int
		}{"text": {text(Window), Window / 4}, "noise": {noise(Window), Window + 16}} {
			var stream bytes.Buffer
			w := NewWriter(&stream)
			w.choice.level = level
			if _, err := w.Write(c.plain); err != nil {
				t.Fatal(err)
			}
			if n := stream.Len(); n > c.most && (level > Off || what == "noise") {
				t.Errorf("%s: %d bytes of %s took %d", level, Window, what, n)
			}
		}
	}
}

// TestForesee: to which share it is packed; what is none, or is faster sent than packed, goes as it is.
func TestForesee(t *testing.T) {
	part := text(Window)
	if got := Foresee([][]byte{part, part, nil}, 0); got <= 0 || got > 0.25 {
		t.Errorf("text: %v", got)
	}
	for what, got := range map[string]float64{
		"noise": Foresee([][]byte{noise(Window)}, 0), "nothing": Foresee(nil, 0), "a fast link": Foresee([][]byte{part}, 1e18),
	} {
		if got < 1 || got > 1.001 {
			t.Errorf("%s: %v", what, got)
		}
	}
}

// TestCutOff: a stream that ends inside a frame has not ended well.
func TestCutOff(t *testing.T) {
	var stream bytes.Buffer
	if _, err := NewWriter(&stream).Write(text(1000)); err != nil {
		t.Fatal(err)
	}
	r, err := Reader(bytes.NewReader(stream.Bytes()[:stream.Len()-1]))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(r); err == nil {
		t.Error("nothing was missed")
	}
}

// TestWriteFails: the error of the writer below is passed on.
func TestWriteFails(t *testing.T) {
	out, in := io.Pipe()
	out.CloseWithError(io.ErrClosedPipe)
	if n, err := NewWriter(in).Write(text(10)); n != 0 || err != io.ErrClosedPipe {
		t.Errorf("%d, %v", n, err)
	}
}

// world is a processor and a link by their speeds, bytes per second. The kernel takes queue bytes before a write waits.
type world struct {
	now, idle   time.Time // idle: when all that was written is on its way
	code        [levels]float64
	ratio       [levels]float64
	link, write float64 // write: of whoever writes to the stream
}

const queue = 128 << 10

// run has a stream of so many seconds pass, and returns its levels and how many bytes it took.
func (w world) run(c *choice, seconds float64) (used [levels]int, bytes float64) {
	begin := w.now
	for w.now.Sub(begin).Seconds() < seconds {
		w.now = w.now.Add(time.Duration(Window / w.write * 1e9))
		begun, level := w.now, c.level
		if level > Off {
			w.now = w.now.Add(time.Duration(Window / w.code[level] * 1e9))
		}
		coded := w.now
		if w.idle.Before(w.now) {
			w.idle = w.now
		}
		w.idle = w.idle.Add(time.Duration(Window / w.ratio[level] / w.link * 1e9))
		w.now = w.now.Add(Window / 4e9 * 1e9) // to copy it
		if room := w.idle.Add(-time.Duration(queue / w.link * 1e9)); room.After(w.now) {
			w.now = room
		}
		c.see(Window, begun, coded, w.now)
		used[level]++
		bytes += Window
	}
	return used, bytes
}

// TestChoice: the level is the one that gets most through, and is never far behind none at all.
func TestChoice(t *testing.T) {
	code := [levels]float64{0, 250e6, 120e6, 50e6}
	packs, doesNot := [levels]float64{1, 2, 2.2, 2.35}, [levels]float64{1, 1, 1, 1}
	for name, c := range map[string]struct {
		world
		most Level
	}{
		"a slow link":           {world{code: code, ratio: packs, link: 1e6, write: 1e9}, Better},
		"a link of 100 Mbit/s":  {world{code: code, ratio: packs, link: 12e6, write: 1e9}, Default},
		"a fast link":           {world{code: code, ratio: packs, link: 1e9, write: 2e9}, Off},
		"noise over a slow one": {world{code: code, ratio: doesNot, link: 12e6, write: 1e9}, Fastest},
		"noise over a fast one": {world{code: code, ratio: doesNot, link: 500e6, write: 1e9}, Off},
	} {
		t.Run(name, func(t *testing.T) {
			c.now = time.Unix(1, 0)
			used, bytes := c.run(&choice{level: Fastest}, 60)
			for level, n := range used {
				if n > used[c.most] {
					t.Errorf("%s is used most: %v", Level(level), used)
				}
			}
			plain := c.world
			plain.code, plain.ratio = [levels]float64{1e15, 1e15, 1e15, 1e15}, doesNot
			if _, without := plain.run(&choice{}, 60); bytes < 0.97*without {
				t.Errorf("%.0f MB got through, %.0f without", bytes/1e6, without/1e6)
			}
		})
	}
}

// TestSlowWriter: who writes less than anything takes is not worked for more and more.
func TestSlowWriter(t *testing.T) {
	w := world{now: time.Unix(1, 0), code: [levels]float64{0, 250e6, 120e6, 50e6}, ratio: [levels]float64{1, 2, 2.2, 2.35}, link: 100e6, write: 1e6}
	if used, _ := w.run(&choice{level: Fastest}, 30); used[Default]+used[Better] > 0 {
		t.Errorf("levels %v", used)
	}
}

// TestWriterThatWaitsForItsLink: such a writer's stream is packed where its link is slower than packing, though neither
// takes most of the time.
func TestWriterThatWaitsForItsLink(t *testing.T) {
	for write, link := range map[float64]float64{60e6: 20e6, 80e6: 30e6, 280e6: 25e6} {
		ratio := [levels]float64{1, 3, 3.2, 3.35}
		w := world{now: time.Unix(1, 0), code: [levels]float64{0, 70e6, 30e6, 12e6}, ratio: ratio, link: link, write: write}
		used, bytes := w.run(&choice{level: Fastest}, 60)
		wire := 0.
		for level, windows := range used {
			wire += float64(windows) * Window / ratio[level]
		}
		if wire > bytes/2 {
			t.Errorf("%.0f MB/s over %.0f MB/s: %.0f MB on the wire of %.0f; levels %v", write/1e6, link/1e6, wire/1e6, bytes/1e6, used)
		}
	}
}

// TestWriterThatWaits: who writes on only when the last was taken is held up by packing, and not for long where that
// takes much of the time, though the writer is slower than all else.
func TestWriterThatWaits(t *testing.T) {
	for _, write := range []float64{30e6, 100e6, 150e6, 300e6} {
		w := world{now: time.Unix(1, 0), code: [levels]float64{0, 70e6, 30e6, 12e6}, ratio: [levels]float64{1, 2, 2.2, 2.35}, link: 1e9, write: write}
		used, bytes := w.run(&choice{level: Fastest}, 30)
		w.code, w.ratio = [levels]float64{1e15, 1e15, 1e15, 1e15}, [levels]float64{1, 1, 1, 1}
		if _, without := w.run(&choice{}, 30); bytes < (1-muchWork)*without {
			t.Errorf("%.0f MB got through, %.0f without; levels %v", bytes/1e6, without/1e6, used)
		}
	}
}
