package encode

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"godwit/transfer/pages"
)

// TestForesee: what a sample is coded to is what a Coder makes of such pages, and of pages that the destination has only
// what was written.
func TestForesee(t *testing.T) {
	random := rand.NewChaCha8([32]byte{1})
	noise := func() []byte {
		b := make([]byte, pages.Size)
		random.Read(b) //nolint:errcheck // it does not fail
		return b
	}
	text := bytes.Repeat([]byte("the same words, "), pages.Size/16)
	half := append(noise()[:pages.Size/2], text[:pages.Size/2]...)
	sample := [][]byte{noise(), text, nil, half, noise()}
	touched := bytes.Clone(sample[3])
	touched[100]++
	for name, c := range map[string]struct {
		sample, before [][]byte
		level          Level
		in, least, out int
	}{
		"as it is":            {sample, nil, Off, 4, 4 * pages.Size, 4*pages.Size + 100},
		"packed":              {sample, nil, Zstd1, 4, 25 * pages.Size / 10, 27 * pages.Size / 10},
		"nothing was written": {sample, sample, Zstd1, 0, 0, 0},
		"a word was written":  {[][]byte{sample[0], text, nil, touched, sample[4]}, sample, Zstd1, 1, 8, 40},
		"nothing":             {nil, nil, S2, 0, 0, 0},
	} {
		got := Foresee(c.sample, c.before, c.level)
		if got.In != uint64(c.in)*pages.Size || got.Out < uint64(c.least) || got.Out > uint64(c.out) {
			t.Errorf("%s: %d bytes of %d, want %d to %d of %d pages", name, got.Out, got.In, c.least, c.out, c.in)
		}
	}
}

// TestBest: the level is the one that Choose takes of what the levels do with the sample.
func TestBest(t *testing.T) {
	var sample [][]byte
	for i := range 3 * pages.MaxPages {
		sample = append(sample, bytes.Repeat([]byte{byte(i), byte(i / 7), 3, 4}, pages.Size/4))
	}
	for name, c := range map[string]struct {
		link float64
		each time.Duration // that a frame takes, whatever the level
		want Level
	}{
		"a slow link":           {1e6, time.Millisecond, Zstd3},
		"slow processors":       {1e9, time.Second, Off},
		"the link is not known": {0, time.Millisecond, S2},
	} {
		now := time.Duration(0)
		clock := func() time.Duration { now += c.each; return now }
		if got := Best(sample, c.link, 0.5, clock); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if got := Best(nil, 0, 1, func() time.Duration { return 0 }); got != S2 {
		t.Errorf("of nothing: %v", got)
	}
}
