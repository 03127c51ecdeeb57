package hold

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// HeaderLen is the size of the virtio-net header before each frame of ReadLeft:
// flags, gso type, header length, segment size, checksum start and offset.
const HeaderLen = 10

// Bounds on what one tap can hold: more is an error, not a loss of memory.
const (
	maxFrames = 1 << 17
	maxFrame  = 64<<10 + 256
)

// ReadLeft reads everything that waits in the tap's queue, oldest first, each as
// a virtio-net header of HeaderLen bytes and an Ethernet frame. It never waits and
// changes no flag of the descriptor, which QEMU may share; but what it reads QEMU
// does not get. On failure it returns what it has read, too.
func ReadLeft(tap *os.File) ([][]byte, error) {
	raw, err := tap.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("read what %s holds: %w", tap.Name(), err)
	}
	var frames [][]byte
	cerr := raw.Control(func(fd uintptr) { frames, err = drain(int(fd)) })
	if err = errors.Join(err, cerr); err != nil {
		return frames, fmt.Errorf("read what %s holds: %w", tap.Name(), err)
	}
	return frames, nil
}

func drain(fd int) ([][]byte, error) {
	header, err := unix.IoctlGetInt(fd, unix.TUNGETVNETHDRSZ)
	if err != nil {
		return nil, fmt.Errorf("get header size: %w", err)
	}
	if header < HeaderLen || header > 64 {
		return nil, fmt.Errorf("header size %d: not of virtio-net", header)
	}
	var frames [][]byte
	buf := make([]byte, maxFrame)
	for len(frames) < maxFrames {
		n, err := readNow(fd, buf)
		if errors.Is(err, unix.EAGAIN) {
			return frames, nil
		}
		if err != nil {
			return frames, err
		}
		if n < header+14 {
			continue
		}
		frame := make([]byte, 0, n-header+HeaderLen)
		frames = append(frames, append(append(frame, buf[:HeaderLen]...), buf[header:n]...))
	}
	return frames, fmt.Errorf("more than %d frames", maxFrames)
}

// readNow reads one frame or returns EAGAIN, whether or not the descriptor blocks.
func readNow(fd int, buf []byte) (int, error) {
	for {
		n, err := unix.Preadv2(fd, [][]byte{buf}, -1, unix.RWF_NOWAIT)
		if err == unix.EOPNOTSUPP { // no such flag for taps in this kernel: look first
			ready, perr := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			if perr == nil && ready == 0 {
				return 0, unix.EAGAIN
			}
			n, err = unix.Read(fd, buf)
		}
		if err != unix.EINTR {
			return n, err
		}
	}
}
