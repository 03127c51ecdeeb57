package visit

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"godwit/transfer/pages"
)

// Memory of a guest is kept sealed, so that its file tells nothing without the host's key,
// which lies elsewhere (where a power cut ends it). The file, in pieces of 4 KiB:
//
//	head   "godwit memory 1\n", salt (32 bytes), tag (16): AES-256-GCM of nothing, with what
//	       stands before it as additional data and a nonce of 12 bytes 0xff
//	group  a table of 128 entries, and the 128 pages of the guest that they are about, in turn
//
// An entry is 32 bytes: a number (8 bytes, 0: the page is not kept), a tag (16), 8 bytes 0.
// A page is sealed by AES-256-GCM with the file's key: HKDF-SHA256 of the host's key and the
// salt. Its nonce is 4 bytes 0 and the entry's number, which no other page of the file has,
// nor an older version of the same; the page's number (8 bytes) is additional data. Numbers
// are big-endian. What was not written is a hole.
const (
	magic      = "godwit memory 1\n"
	saltSize   = 32
	tagSize    = 16
	nonceSize  = 12
	headSize   = len(magic) + saltSize + tagSize
	groupPages = 128
	entrySize  = pages.Size / groupPages
)

// Key seals what one host keeps.
type Key [32]byte

// ReadKey reads the key that MakeKey made.
func ReadKey(path string) (k Key, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return k, fmt.Errorf("key of kept memory: %w", err)
	}
	if len(data) != len(k) {
		return k, fmt.Errorf("key of kept memory: %s has %d bytes", path, len(data))
	}
	copy(k[:], data)
	return k, nil
}

// MakeKey makes a key at path, unless there is one already. It is whole, or not there.
func MakeKey(path string) error {
	if _, err := ReadKey(path); err == nil {
		return nil
	}
	var k Key
	rand.Read(k[:])                                      //nolint:errcheck // it does not fail
	f, err := os.CreateTemp(filepath.Dir(path), ".tmp-") // mode 0600
	if err != nil {
		return fmt.Errorf("make key of kept memory: %w", err)
	}
	_, err = f.Write(k[:])
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("make key of kept memory: %w", errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}

// of is the cipher of the file with a salt.
func (k *Key) of(salt []byte) (cipher.AEAD, error) {
	own, err := hkdf.Key(sha256.New, k[:], salt, "kept memory", len(k))
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(own)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// headNonce is no page's.
var headNonce = [nonceSize]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// newHead is the head of a new file, and its cipher.
func (k *Key) newHead() (head []byte, seal cipher.AEAD, err error) {
	head = append(make([]byte, 0, headSize), magic...)
	head = head[:len(magic)+saltSize]
	rand.Read(head[len(magic):]) //nolint:errcheck // it does not fail
	if seal, err = k.of(head[len(magic):]); err != nil {
		return nil, nil, err
	}
	return seal.Seal(head, headNonce[:], nil, head), seal, nil
}

// ErrKey is the end of one who opens what another key, or none, has sealed.
var ErrKey = errors.New("not sealed by this host's key")

// open reads the head of a file.
func (k *Key) open(f io.ReaderAt) (cipher.AEAD, error) {
	head := make([]byte, headSize)
	if _, err := f.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	at := len(magic) + saltSize
	if string(head[:len(magic)]) != magic {
		return nil, ErrKey
	}
	seal, err := k.of(head[len(magic):at])
	if err != nil {
		return nil, err
	}
	if _, err := seal.Open(nil, headNonce[:], head[at:], head[:at]); err != nil {
		return nil, ErrKey
	}
	return seal, nil
}

// tableAt and pageAt are where a page's group and the page itself begin in the file.
func tableAt(page uint64) int64 {
	return int64(1+page/groupPages*(1+groupPages)) * pages.Size //nolint:gosec // below maxPages
}

func pageAt(page uint64) int64 {
	return tableAt(page) + int64(1+page%groupPages)*pages.Size //nolint:gosec // as above
}

// entry is a page's part of its group's table.
type entry []byte

func entryOf(table []byte, page uint64) entry {
	at := page % groupPages * entrySize
	return table[at : at+entrySize]
}

func (e entry) number() uint64 { return binary.BigEndian.Uint64(e) }
func (e entry) tag() []byte    { return e[8 : 8+tagSize] }

// nonceFor is the nonce of number, and the additional data of page.
func nonceFor(number, page uint64) (nonce [nonceSize]byte, data [8]byte) {
	binary.BigEndian.PutUint64(nonce[nonceSize-8:], number)
	binary.BigEndian.PutUint64(data[:], page)
	return nonce, data
}
