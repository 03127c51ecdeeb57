package mptcp

import "testing"

// FuzzDecodeSocket: the kernel is trusted, but not with our stack: no answer may panic.
func FuzzDecodeSocket(f *testing.F) {
	f.Add(make([]byte, diagMessageLen))
	f.Add(append(make([]byte, diagMessageLen), 8, 0, 19, 0, 1, 2, 3, 4))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decodeSocket(b)
		if err == nil {
			group([]socket{s}, []socket{s})
			tcpFigures(b)
		}
	})
}
