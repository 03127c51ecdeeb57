package proxy

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"godwit/transfer/pages"
)

// queueFile is the file of what waits to be sent and has no room in memory. Where its disk is full it says what to do.
type queueFile struct{ pages.Spill }

// WriteAt writes as the file does.
func (f queueFile) WriteAt(data []byte, at int64) (int, error) {
	n, err := f.Spill.WriteAt(data, at)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		err = fmt.Errorf("%w; make room there, or give what waits to be sent more memory (--buffer)", err)
	}
	return n, err
}
