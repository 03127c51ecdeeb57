package inlet

import (
	"errors"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// descriptors reads bytes, and keeps the one descriptor that comes with them.
type descriptors struct {
	conn *net.UnixConn
	got  net.Conn
}

func (d *descriptors) Read(p []byte) (int, error) {
	control := make([]byte, unix.CmsgSpace(4))
	n, controls, _, _, err := d.conn.ReadMsgUnix(p, control)
	if n == 0 && err == nil {
		err = io.EOF
	}
	if n = max(n, 0); controls <= 0 {
		return n, err
	}
	messages, perr := unix.ParseSocketControlMessage(control[:controls])
	for _, m := range messages {
		fds, rerr := unix.ParseUnixRights(&m)
		perr = errors.Join(perr, rerr)
		for _, fd := range fds {
			perr = errors.Join(perr, d.keep(fd))
		}
	}
	return n, errors.Join(err, perr)
}

func (d *descriptors) keep(fd int) error {
	f := os.NewFile(uintptr(fd), "qemu")
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		return err
	}
	d.close()
	d.got = conn
	return nil
}

func (d *descriptors) take() net.Conn {
	conn := d.got
	d.got = nil
	return conn
}

func (d *descriptors) close() {
	if d.got != nil {
		d.got.Close()
		d.got = nil
	}
}
