package agent

import (
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"godwit/agent/config"
	"godwit/agent/sample"
	"godwit/agent/talk"
	"godwit/migration"
	"godwit/transfer/encode/visit"
	"godwit/transfer/pages"
)

// TestWhichHere: a host has pages of a guest's memory where it kept them of an earlier visit, or anywhere in its image;
// where nothing is kept, it does not look.
func TestWhichHere(t *testing.T) {
	random := rand.NewChaCha8([32]byte{1})
	noisePage := func() []byte {
		b := make([]byte, pages.Size)
		random.Read(b) //nolint:errcheck // it does not fail
		return b
	}
	kept, image, changed := noisePage(), noisePage(), noisePage()
	c := &config.Config{KeepMemory: 1 << 30}
	a := visitsHost(t, c)
	key, err := visit.ReadKey(c.MemoryKey())
	if err != nil {
		t.Fatal(err)
	}
	w, err := visit.Create(c.StatePath("visits"), key)
	if err != nil {
		t.Fatal(err)
	}
	for number, page := range map[uint64][]byte{7: kept, 300: changed} {
		if err := w.Write(number, page); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Name("web.mem"); err != nil {
		t.Fatal(err)
	}
	c.Image.Kernel = c.StatePath("vmlinuz")
	if err := os.WriteFile(c.Image.Kernel, slices.Concat(noisePage(), image, []byte("end")), 0o600); err != nil {
		t.Fatal(err)
	}
	offer := talk.Offer{Plan: migration.Plan{Guest: "web"}, Sample: &sample.Pages{Pages: []uint64{7, 8, 9, 300, 1 << 40}}}
	for _, page := range [][]byte{kept, kept, image, noisePage(), noisePage()} {
		offer.Sample.Hashes = append(offer.Sample.Hashes, pages.Fast(page))
	}
	if got := <-a.beginHas(t.Context(), offer); !slices.Equal(got, []bool{true, false, true, false, false}) {
		t.Errorf("has %v", got)
	}
	offer.Plan.Guest = "other"
	if got := <-a.beginHas(t.Context(), offer); !slices.Equal(got, []bool{false, false, true, false, false}) {
		t.Errorf("of another guest it has %v", got)
	}
	c.KeepMemory = 0
	if got := <-a.beginHas(t.Context(), offer); got != nil {
		t.Errorf("nothing is kept, and it has %v", got)
	}
}
