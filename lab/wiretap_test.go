package lab

import (
	"bytes"
	"encoding/base64"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"godwit/netstate/netns"
	"godwit/vm/guest"
)

// A wiretap hears all that passes the internet of a world.
type wiretap struct {
	p       *trial
	secrets [][]byte // a part of each of some pages of the guest
	fd      int

	mu    sync.Mutex
	frame []byte
	bytes int
	seen  bool
}

// taps has web make some pages in memory that no other has, and hears from then on whether one of them passes as it is,
// which compression does not change: they are random.
func (p *trial) taps(host string) *wiretap {
	p.Helper()
	var made guest.Executed
	p.must(p.w.agents[host].client.CallGuest(p.Context(), "web", "exec", guest.Exec{
		Command: "head -c 32768 /dev/urandom >/tmp/secret && base64 /tmp/secret", TimeoutMS: time.Minute.Milliseconds()}, &made))
	pages, err := base64.StdEncoding.DecodeString(made.Stdout)
	p.must(err)
	w := &wiretap{p: p, frame: make([]byte, 1<<17)}
	for at := 2048; at < len(pages); at += 4096 {
		w.secrets = append(w.secrets, pages[at:at+32])
	}
	if len(w.secrets) != 8 {
		p.Fatalf("the guest made %d bytes; it said %q", len(pages), made.Stderr)
	}
	p.must(netns.Do(p.w.topo.Core(), func() (err error) {
		w.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.ETH_P_ALL>>8|unix.ETH_P_ALL<<8&0xff00)
		return err
	}))
	socket := os.NewFile(uintptr(w.fd), "wiretap")
	var ended sync.WaitGroup
	p.Cleanup(func() { socket.Close(); ended.Wait() })
	p.must(unix.SetsockoptInt(w.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20))
	p.must(unix.SetsockoptInt(w.fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)) // what it hands on came in
	raw, err := socket.SyscallConn()
	p.must(err)
	ended.Go(func() {
		raw.Read(func(uintptr) bool { w.hear(); return false }) //nolint:errcheck // it is closed at the end
	})
	return w
}

// hear takes all frames that wait.
func (w *wiretap) hear() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		n, err := unix.Read(w.fd, w.frame)
		if err != nil {
			return
		}
		w.bytes += n
		for _, secret := range w.secrets {
			w.seen = w.seen || bytes.Contains(w.frame[:n], secret)
		}
	}
}

// heard checks that since it was asked last one of the pages passed as it is, or that none did, of what carried memory:
// less of it where the host that the guest came to had kept some.
func (w *wiretap) heard(name string, want bool) {
	w.p.Helper()
	w.hear()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seen != want || w.bytes < 1<<20 {
		w.p.Errorf("%s: memory of the guest was among %d bytes as it is: %v, want %v", name, w.bytes, w.seen, want)
	}
	w.seen, w.bytes = false, 0
}
