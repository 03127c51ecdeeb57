package workload

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"godwit/internal/need"
)

func TestParse(t *testing.T) {
	for line, want := range map[string]Workload{
		"dirty size=100MiB hot=12% rate=8MiB/s":   {Kind: Dirty, Size: 100 << 20, Hot: 0.12, Rate: 8 << 20},
		"dirty size=4KiB data=text":               {Kind: Dirty, Size: 4096, Hot: 1, Text: true},
		"dirty size=1.5MiB data=random rate=1B/s": {Kind: Dirty, Size: 3 << 19, Hot: 1, Rate: 1},
		"disk write=64MiB":                        {Kind: Disk, Write: 64 << 20},
		"disk write=64MiB data=text":              {Kind: Disk, Write: 64 << 20, Text: true},
		"disk rate=4MB/s area=128MiB":             {Kind: Disk, Rate: 4e6, Area: 128 << 20},
		"disk rate=64mbit area=1GB":               {Kind: Disk, Rate: 8e6, Area: 1e9},
		"dirty size=1mib rate=2Mbit/s":            {Kind: Dirty, Size: 1 << 20, Hot: 1, Rate: 250000},
		" cpu ":                                   {Kind: CPU},
		"http":                                    {Kind: HTTP},
		"exec  sleep 1; echo a=b":                 {Kind: Exec, Command: "sleep 1; echo a=b"},
		"setup true":                              {Kind: Setup, Command: "true"},
	} {
		got, err := Parse(line)
		if err != nil || got != want {
			t.Errorf("Parse(%q) = %+v, %v; want %+v", line, got, err, want)
		}
	}
}

func TestParseSaysWhatIsAllowed(t *testing.T) {
	for line, want := range map[string]string{
		"":                             "allowed: dirty, disk, cpu, http, exec, setup",
		"setup":                        "no command; allowed: setup COMMAND",
		"dirt size=1MiB":               "allowed: dirty, disk",
		"dirty":                        "size is missing",
		"dirty size=100":               "as in: 256MiB",
		"dirty size=-1MiB":             "as in: 256MiB",
		"dirty size=NaNMiB":            "as in: 256MiB",
		"dirty size=1MiB hot=120%":     "as in: 12%",
		"dirty size=1MiB hot=0.1":      "as in: 12%",
		"dirty size=1MiB rate=8MiB":    "as in: 8MiB/s",
		"dirty size=1MiB data=zero":    "allowed: random, text",
		"dirty size=1MiB size=2MiB":    "given twice",
		"dirty size=1MiB wrong=1":      "allowed: size=, hot=, rate=, data=",
		"disk":                         "needs either write=SIZE",
		"disk write=1MiB rate=1MiB/s":  "needs either write=SIZE",
		"disk rate=1MiB/s":             "needs both",
		"disk write=1MiB data=touch":   "allowed: random, text",
		"cpu 2":                        "allowed: nothing",
		"exec":                         "no command",
		"dirty size=99999999999999TiB": "is no size",
	} {
		if _, err := Parse(line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q): got %v, want an error with %q", line, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("dirty size=100MiB hot=12% rate=8MiB/s data=text")
	f.Fuzz(func(t *testing.T, line string) {
		w, err := Parse(line)
		if err == nil && (w.Size < 0 || w.Rate < 0 || w.Hot < 0 || w.Hot > 1) {
			t.Errorf("Parse(%q) = %+v", line, w)
		}
	})
}

func TestEveryFlippedBitIsSeen(t *testing.T) {
	page := make([]byte, PageSize)
	r := Random(7)
	FillPage(page, 1, 2, 3, false, &r)
	if !CheckPage(page, 1, 2, 3) {
		t.Fatal("a fresh page does not check")
	}
	if CheckPage(page, 1, 2, 4) || CheckPage(page, 1, 3, 3) || CheckPage(page, 2, 2, 3) {
		t.Error("a page passes for another one, or for another version")
	}
	for bit := range PageSize * 8 {
		page[bit/8] ^= 1 << (bit % 8)
		if CheckPage(page, 1, 2, 3) {
			t.Fatalf("flipped bit %d is not seen", bit)
		}
		page[bit/8] ^= 1 << (bit % 8)
	}
}

// TestTextShrinksToAThird holds the contract's word: zstd level 1, ± 10 %.
func TestTextShrinksToAThird(t *testing.T) {
	need.Program(t, "zstd")
	for _, c := range []struct {
		text      bool
		low, high float64
	}{{true, 0.30, 0.367}, {false, 0.99, 1.01}} {
		area := make([]byte, 256*PageSize)
		r := Random(9)
		for i := range 256 {
			FillPage(area[i*PageSize:], 1, uint32(i), 1, c.text, &r)
		}
		for _, chunk := range []int{len(area), 16 * PageSize} {
			var packed int
			for from := 0; from < len(area); from += chunk {
				command := exec.Command("zstd", "-1", "-c", "-q")
				command.Stdin = bytes.NewReader(area[from : from+chunk])
				out, err := command.Output()
				if err != nil {
					t.Fatal(err)
				}
				packed += len(out)
			}
			ratio := float64(packed) / float64(len(area))
			t.Logf("text=%v in chunks of %d: %.3f", c.text, chunk, ratio)
			if ratio < c.low || ratio > c.high {
				t.Errorf("text=%v in chunks of %d shrinks to %.3f, want %.2f to %.3f", c.text, chunk, ratio, c.low, c.high)
			}
		}
	}
}

func TestTouchPage(t *testing.T) {
	page, r := make([]byte, PageSize), Random(3)
	FillPage(page, 1, 2, 1, false, &r)
	for version := uint32(2); version < 300; version++ {
		before := bytes.Clone(page[contentFrom:])
		TouchPage(page, version, &r)
		changed := 0
		for i, b := range page[contentFrom:] {
			if b != before[i] {
				changed++
			}
		}
		if changed != 1 || !CheckPage(page, 1, 2, version) || CheckPage(page, 1, 2, version-1) {
			t.Fatalf("version %d: %d bytes changed", version, changed)
		}
	}
}

func BenchmarkFillPage(b *testing.B) {
	page := make([]byte, PageSize)
	r := Random(1)
	for name, text := range map[string]bool{"random": false, "text": true} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(PageSize)
			for b.Loop() {
				FillPage(page, 1, 2, 3, text, &r)
			}
		})
	}
}
