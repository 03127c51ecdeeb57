package serve

import (
	"bytes"
	"io"
	"testing"

	"godwit/lab/traffic/record"
)

// TestRecordsUseTheirRoomAgain: a download, which an emulated guest sends as fast as it can, takes no memory for a batch,
// and sends each record whole and once.
func TestRecordsUseTheirRoomAgain(t *testing.T) {
	const batch, size = 16, 1000
	h := record.Hello{Seed: 7, Size: size}
	r, number := newRecords(batch), uint64(0)
	var sent bytes.Buffer
	for range 3 {
		if err := r.write(&sent, h, number); err != nil {
			t.Fatal(err)
		}
		number += batch
	}
	var want []byte
	for n := range number {
		want = record.Append(want, record.Data, n, record.Payload(h.Seed, n, size))
	}
	if !bytes.Equal(sent.Bytes(), want) {
		t.Errorf("%d bytes are sent, which are not the %d of its records", sent.Len(), len(want))
	}
	if n := testing.AllocsPerRun(100, func() {
		_ = r.write(io.Discard, h, 0)
	}); n > 0 {
		t.Errorf("a batch takes memory %v times", n)
	}
}
