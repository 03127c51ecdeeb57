package pages

import (
	"crypto/sha256"

	"github.com/zeebo/xxh3"
)

// Identity tells contents apart: equal identities are equal contents. It is the SHA-256.
type Identity [32]byte

// Identify returns the identity of a page's content.
func Identify(data []byte) Identity { return sha256.Sum256(data) }

// Fast returns a hash of a page's content that leads to candidates; it proves nothing.
func Fast(data []byte) uint64 { return xxh3.Hash(data) }

// Fast is that of the page's content, which must not be zero.
func (t *Page) Fast() uint64 {
	if t.hashed {
		return t.fast
	}
	return Fast(t.Data)
}
