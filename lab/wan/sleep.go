package wan

import (
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// shortWait is the longest wait that is hidden from Go's scheduler.
const shortWait = 5 * time.Millisecond

// sleep waits until one of fds is ready or the time has passed; less than 0 is for ever.
//
// Go's monitor thread looks after every thread in a system call, each 20 µs when calls
// are many: that would cost more than the link itself. So short waits, and the reads
// and writes of the loop, which never wait, are raw calls, which the scheduler takes
// for computing; a long wait is a proper one, so that an idle link costs nothing.
func sleep(fds []unix.PollFd, wait time.Duration) error {
	if wait < 0 || wait > shortWait {
		var timeout *unix.Timespec
		if wait >= 0 {
			ts := unix.NsecToTimespec(int64(wait))
			timeout = &ts
		}
		if _, err := unix.Ppoll(fds, timeout, nil); err != nil && err != unix.EINTR {
			return err
		}
		return nil
	}
	ts := unix.NsecToTimespec(int64(wait))
	_, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&fds[0])),
		uintptr(len(fds)), uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
	if errno != 0 && errno != unix.EINTR {
		return errno
	}
	return nil
}

// rawRead and rawWrite are read(2) and write(2) for descriptors that never block.
func rawRead(fd int, b []byte) (int, syscall.Errno) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	return int(n), errno
}

func rawWrite(fd int, b []byte) syscall.Errno {
	_, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	return errno
}
