package encode

import (
	"encoding/binary"
	"fmt"

	"godwit/transfer/pages"
)

const (
	word  = 8
	words = pages.Size / word
)

// appendDelta appends the difference between two pages to dst. It gives up, and says so,
// when that takes more than most bytes.
func appendDelta(dst, base, data []byte, most int) ([]byte, bool) {
	base, data = base[:pages.Size], data[:pages.Size]
	from := len(dst)
	for at := 0; ; {
		equal := at
		for at < pages.Size && load(base, at) == load(data, at) {
			at += word
		}
		if at == pages.Size {
			return dst, true
		}
		changed := at
		for at < pages.Size && load(base, at) != load(data, at) {
			at += word
		}
		if len(dst)-from+4+at-changed > most {
			return dst[:from], false
		}
		dst = binary.AppendUvarint(dst, uint64(changed-equal)/word)
		dst = binary.AppendUvarint(dst, uint64(at-changed)/word)
		dst = append(dst, data[changed:at]...)
	}
}

func load(b []byte, at int) uint64 { return binary.LittleEndian.Uint64(b[at : at+word]) }

// applyDelta changes the page into what the delta was made from.
func applyDelta(page, delta []byte) error {
	at := 0
	for len(delta) > 0 {
		equal, n := binary.Uvarint(delta)
		if n <= 0 || equal > words {
			return fmt.Errorf("%w: run in a delta", ErrCorrupt)
		}
		changed, m := binary.Uvarint(delta[n:])
		if m <= 0 || changed == 0 || changed > words { // none would let a few packed bytes make a long way to the page's end
			return fmt.Errorf("%w: run in a delta", ErrCorrupt)
		}
		delta = delta[n+m:]
		at += int(equal) * word
		length := int(changed) * word
		if at+length > pages.Size || length > len(delta) {
			return fmt.Errorf("%w: delta past its page", ErrCorrupt)
		}
		copy(page[at:], delta[:length])
		delta = delta[length:]
		at += length
	}
	return nil
}
