package peer

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
)

// FuzzHeader: no bytes make reading a header panic, take more than its limit, or let
// through what the agent cannot mean.
func FuzzHeader(f *testing.F) {
	f.Add([]byte(`{"migration":"m-00000001","kind":"memory","number":3}` + "\nrest"))
	f.Add([]byte(`{"kind":"memory","coding":"zstd"}` + "\n\x28\xb5\x2f\xfd\x00\x58\x01\x00\x00"))
	f.Add([]byte(`{"number":1e9}` + "\n"))
	f.Add([]byte("\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		in := bytes.NewReader(data)
		h, rest, err := readHeader(in)
		if err != nil {
			if read := len(data) - in.Len(); read > headerLimit {
				t.Fatalf("%d bytes read for a refusal", read)
			}
			return
		}
		if h.Number < 0 || h.Number > numberMost || len(h.Migration)+len(h.Kind)+len(h.Coding) > headerLimit {
			t.Fatalf("%+v", h)
		}
		said, err := io.ReadAll(io.LimitReader(rest, 1<<20))
		_, after, _ := bytes.Cut(data, []byte("\n"))
		if h.Coding == "" && (err != nil || !bytes.Equal(said, after)) {
			t.Fatalf("rest %q, %v; want %q", said, err, after)
		}
	})
}

// endless counts what is read of it.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	e.read += len(p)
	return len(p), nil
}

// TestDecodeBounds: a request that never ends is not read to its end.
func TestDecodeBounds(t *testing.T) {
	body := &endless{}
	var into map[string]any
	err := Decode(&http.Request{Body: io.NopCloser(body)}, &into)
	if err == nil || !strings.Contains(err.Error(), "larger than 8 MiB") || body.read > 2*requestLimit {
		t.Fatalf("%v after %d bytes", err, body.read)
	}
}
