package encode

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"godwit/transfer/pages"
)

func TestDeltaGivesUp(t *testing.T) {
	base, data := make([]byte, pages.Size), bytes.Repeat([]byte{1}, pages.Size)
	kept := []byte("kept")
	if got, ok := appendDelta(kept, base, data, mostDelta); ok || string(got) != "kept" {
		t.Errorf("%d bytes, %v", len(got), ok)
	}
	if got, ok := appendDelta(nil, base, base, mostDelta); !ok || len(got) != 0 {
		t.Errorf("no difference: %d bytes, %v", len(got), ok)
	}
}

func FuzzDelta(f *testing.F) {
	f.Add(uint64(1), uint16(4), []byte{0, 1, 1, 2, 3, 4, 5, 6, 7, 8})
	f.Add(uint64(2), uint16(600), []byte{1, 0})
	f.Fuzz(func(t *testing.T, seed uint64, changes uint16, lie []byte) {
		random := rand.New(rand.NewPCG(seed, 0))
		base := make([]byte, pages.Size)
		for i := range base {
			base[i] = byte(random.Uint32())
		}
		data := bytes.Clone(base)
		for range changes {
			data[random.IntN(pages.Size)] = byte(random.Uint32())
		}
		delta, ok := appendDelta(nil, base, data, 2*pages.Size)
		if !ok || len(delta) > pages.Size+pages.Size/8 {
			t.Fatalf("delta of %d bytes, %v", len(delta), ok)
		}
		got := bytes.Clone(base)
		if err := applyDelta(got, delta); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("page differs: %v", err)
		}
		if err := applyDelta(got, lie); err != nil && !errors.Is(err, ErrCorrupt) {
			t.Fatal(err)
		}
	})
}

func BenchmarkDelta(b *testing.B) {
	for _, changed := range []int{4, 32, 128} {
		b.Run(map[int]string{4: "4words", 32: "32words", 128: "128words"}[changed], func(b *testing.B) {
			random := rand.New(rand.NewPCG(1, 0))
			base := make([]byte, pages.Size)
			data := bytes.Clone(base)
			for range changed {
				data[random.IntN(words)*word]++
			}
			var delta []byte
			b.SetBytes(pages.Size)
			for b.Loop() {
				delta, _ = appendDelta(delta[:0], base, data, mostDelta)
			}
			b.ReportMetric(pages.Size/float64(len(delta)), "ratio")
		})
	}
}
