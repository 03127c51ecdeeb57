package qstream

import (
	"encoding/binary"
	"io"
	"strings"
	"syscall"
	"testing"
)

// endless says something again and again, for so many bytes.
type endless struct {
	again    string
	at, most int
}

func (e *endless) Read(p []byte) (int, error) {
	p = p[:min(len(p), e.most-e.at)]
	if len(p) == 0 {
		return 0, io.EOF
	}
	for i := range p {
		p[i] = e.again[(e.at+i)%len(e.again)]
	}
	e.at += len(p)
	return len(p), nil
}

// TestEndlessStreams: of what comes before memory, of its blocks, and of the devices behind it no more is kept than there
// may be.
func TestEndlessStreams(t *testing.T) {
	const most = maxHead + 2*bufferSize // bytes that are read of any
	word := func(v uint64) string { return string(binary.BigEndian.AppendUint64(nil, v)) }
	head := "QEVM\x00\x00\x00\x03\x07\x00\x00\x00\x02pc"
	for want, c := range map[string]struct{ head, again string }{
		"more than 1048576 bytes before RAM": {head, "\x08\x00\x02\x00\x04\x00\x00\x00\x01"},
		"more than 4096 blocks":              {head + "\x01\x00\x00\x00\x07\x03ram\x00\x00\x00\x00\x00\x00\x00\x04" + word(MaxMemory|flagMemSize), "\x01a" + word(PageSize)},
	} {
		more := &endless{again: c.again, most: 2 * most}
		_, err := NewParser(io.MultiReader(strings.NewReader(c.head), more)).Next()
		if err == nil || !strings.Contains(err.Error(), want) || more.at > most {
			t.Errorf("%v after %d bytes, want %q", err, more.at, want)
		}
	}
}

// TestEndlessTail: neither a tail nor the description at its end is longer than it may be.
func TestEndlessTail(t *testing.T) {
	full, err := syscall.Mmap(-1, 0, MaxTail, syscall.PROT_READ, syscall.MAP_PRIVATE|syscall.MAP_ANON) // of which nothing is touched
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(full) //nolint:errcheck // the end of the test
	long := tail{data: full}
	if _, _, err := long.add([]byte{1}); err == nil || !strings.Contains(err.Error(), "more than 512 MiB") {
		t.Errorf("a byte more than there may be: %v", err)
	}
	for length, ok := range map[int]bool{maxDescription: true, maxDescription + 1: false} {
		text := `{"page_size": 4096, "devices": [{}], "more": "` + strings.Repeat("x", length)
		text = text[:length-2] + `"}`
		devices := binary.BigEndian.AppendUint32([]byte{1, secEOF, secDescription}, uint32(length)) //nolint:gosec // small
		var t1 tail
		at, complete, err := t1.add(append(devices, text...))
		if err != nil || complete != ok || ok && at != 1 {
			t.Errorf("a description of %d bytes ends the tail: %v, devices of %d bytes, %v", length, complete, at, err)
		}
	}
}
