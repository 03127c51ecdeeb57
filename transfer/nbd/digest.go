package nbd

import (
	"crypto/sha256"
	"hash"
	"sync"
)

// Digest is the SHA-256 of the requests of an NBD client, in their order. Its zero value is of none.
type Digest struct {
	mu  sync.Mutex
	sum hash.Hash // nil: nothing yet
}

// Write adds what was asked. It has no error.
func (d *Digest) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sum == nil {
		d.sum = sha256.New()
	}
	return d.sum.Write(p)
}

// Sum is that of what was added so far.
func (d *Digest) Sum() []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sum == nil {
		return sha256.New().Sum(nil)
	}
	return d.sum.Sum(nil)
}
