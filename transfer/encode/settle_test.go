package encode_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"godwit/transfer/encode"
	"godwit/transfer/pages"
)

// TestStopThatWasForeseen: of what the guest always writes to a version is under way when it is stopped, so that the
// last one travels whole, however little has changed; not so where the stop was foreseen a round trip before.
func TestStopThatWasForeseen(t *testing.T) {
	const hot = 64
	for _, foreseen := range []bool{false, true} {
		store := pages.New(hot, pages.NewArena(3*hot*pages.Size, nil, nil))
		coder := encode.NewCoder(store, nil)
		rng := rand.New(rand.NewPCG(1, 2))
		var guest [hot][pages.Size]byte
		for page := range guest {
			for i := range guest[page] {
				guest[page][i] = byte(rng.Uint32())
			}
		}
		write := func() {
			for page := range guest {
				guest[page][rng.IntN(pages.Size)]++
				if err := store.Put(uint64(page), guest[page][:]); err != nil { //nolint:gosec // not negative
					t.Fatal(err)
				}
			}
		}
		send := func() (numbers []uint64, size int) {
			for {
				f, err := store.Take(pages.MaxPages)
				if err != nil {
					t.Fatal(err)
				}
				if f == nil {
					return numbers, size
				}
				body, _ := coder.Encode(nil, f, encode.Zstd1)
				store.Sent(f)
				numbers, size = append(numbers, f.Number), size+len(body)
			}
		}
		const trips = 10
		var flying []uint64
		for trip := range trips {
			write()
			if foreseen && trip == trips-1 {
				store.Settle(math.MaxUint64)
			}
			for _, number := range flying {
				if err := store.Acked(number); err != nil {
					t.Fatal(err)
				}
			}
			flying, _ = send()
		}
		write()
		p := store.Progress()
		store.Stop()
		_, size := send()
		t.Logf("foreseen %v: %d bytes", foreseen, size)
		if foreseen && (size > hot*40 || p.Behind > 0 || p.Kept != hot) || !foreseen && (size < hot*pages.Size || p.Behind != hot || p.Kept > 0) {
			t.Errorf("foreseen %v: %d bytes after the stop; before it %+v", foreseen, size, p)
		}
	}
}
