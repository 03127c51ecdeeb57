// Package inlet feeds the QEMU whose guest runs before its pages are there (post-copy), in
// a process that outlives the agent.
//
// From the moment that such a guest may run, the connection into its QEMU must not break,
// and what is still missing must be known to somebody. So the destination's proxy hands
// both over: the connection, and the list. The inlet writes each page that is missing once,
// remembers for which ones QEMU has asked, and ends the stream with the last. A proxy that
// comes after an agent's end is told all that, and goes on. The inlet ends by itself: with
// QEMU's connection, or with its first proxy where that never began.
//
// # Messages
//
// Over one unix connection at a time, the newest (what the one before it gave is taken first); either side sends
//
//	u8 kind, be32 length, length bytes
//
// Integers are big-endian. What is not as below ends the connection.
//
//	to the inlet:
//	Prologue 1  QEMU's stream until the end of the START of "ram"
//	Runs     2  pages that are missing, in parts, by rising number (wire.AppendDiscard)
//	Devices  3  QEMU's devices, in parts
//	Begin    4  nothing; with QEMU's connection as a descriptor: all of it was said
//	Page     5  be64 number, 4096 bytes
//	Zero     6  be64 number
//	Flush    7  nothing: give QEMU what there is
//
//	to the proxy, first of all Prologue, Runs and Asked where it has begun, and State:
//	Prologue 1
//	Runs     2
//	Asked    8  pages that QEMU waits for (wire.AppendFault)
//	State    9  u8: 0 not begun, 1 begun; after Begin 0 again and again while QEMU is told what is missing, then 1
//	Done    10  be32: value of QEMU's SHUT; it has every page
//	Broken  11  text: QEMU's connection has ended before that
package inlet

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"godwit/transfer/pages"
	"godwit/transfer/wire"
)

type kind uint8

const (
	kindPrologue kind = 1
	kindRuns     kind = 2
	kindDevices  kind = 3
	kindBegin    kind = 4
	kindPage     kind = 5
	kindZero     kind = 6
	kindFlush    kind = 7
	kindAsked    kind = 8
	kindState    kind = 9
	kindDone     kind = 10
	kindBroken   kind = 11
)

const (
	header  = 5
	longest = 8 + pages.Size // of what is not below, bytes
	buffer  = 256 << 10
)

// limit is how long a message's body may be, bytes.
func (k kind) limit() int {
	switch k {
	case kindPrologue, kindRuns, kindDevices, kindAsked:
		return wire.MaxBody
	}
	return longest
}

func put(w *bufio.Writer, k kind, parts ...[]byte) error {
	length := 0
	for _, p := range parts {
		length += len(p)
	}
	if length > k.limit() {
		return fmt.Errorf("message %d of %d bytes", k, length)
	}
	head := binary.BigEndian.AppendUint32([]byte{byte(k)}, uint32(length)) //nolint:gosec // at most a limit
	_, err := w.Write(head)
	for _, p := range parts {
		if _, err = w.Write(p); err != nil {
			break
		}
	}
	return err
}

// get reads a message; its body is part of buf where there is room.
func get(r io.Reader, buf []byte) (kind, []byte, error) {
	var head [header]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	k, length := kind(head[0]), int(binary.BigEndian.Uint32(head[1:]))
	if k == 0 || k > kindBroken || length > k.limit() {
		return 0, nil, fmt.Errorf("message %d of %d bytes", k, length)
	}
	if length > len(buf) {
		buf = make([]byte, length)
	}
	if _, err := io.ReadFull(r, buf[:length]); err != nil {
		return 0, nil, errors.Join(io.ErrUnexpectedEOF, err)
	}
	return k, buf[:length], nil
}

func putRuns(w *bufio.Writer, runs []wire.Run) error {
	for len(runs) > 0 {
		n := min(len(runs), wire.MaxRuns)
		if err := put(w, kindRuns, wire.AppendDiscard(nil, runs[:n])); err != nil {
			return err
		}
		runs = runs[n:]
	}
	return nil
}
