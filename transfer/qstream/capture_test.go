package qstream_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// captures are streams of real QEMUs, by the name of their file. scripts/capture-stream
// takes them.
func captures(t testing.TB) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob("testdata/*.zst")
	for _, of := range []string{`7\.2\.`, `10\.0\.`, `(1[1-9]|[2-9]\d)\.`} { // the oldest and the newest that there are packages of, and one between
		if !slices.ContainsFunc(files, regexp.MustCompile(`^testdata/`+of).MatchString) {
			t.Fatalf("no capture of QEMU %s: %v, %v", of, files, err)
		}
	}
	z, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	all := map[string][]byte{}
	for _, name := range files {
		packed, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		b, err := z.DecodeAll(packed, nil)
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimSuffix(filepath.Base(name), ".zst")] = b
	}
	return all
}

// keep writes a capture.
func keep(t *testing.T, name string, stream []byte) {
	t.Helper()
	z, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithWindowSize(8<<20))
	if err != nil {
		t.Fatal(err)
	}
	packed := z.EncodeAll(stream, nil)
	if err := os.WriteFile(filepath.Join("testdata", name+".zst"), packed, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Logf("kept as %s: %d bytes", name, len(packed))
}
