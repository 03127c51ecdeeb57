package address

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"godwit/internal/need"
	"godwit/vm/guest"

	"golang.org/x/sys/unix"
)

// asked and said are struct seccomp_notif and struct seccomp_notif_resp.
type (
	asked struct {
		id         uint64
		pid, flags uint32
		nr         int32
		arch       uint32
		ip         uint64
		args       [6]uint64
	}
	said struct {
		id    uint64
		val   int64
		err   int32
		flags uint32
	}
)

// breaking calls f on a thread of its own, of whose requests to the kernel that list nothing the nth is refused, and says
// whether there were so many.
func breaking(t *testing.T, nth int, f func() error) (broke bool, err error) {
	t.Helper()
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the call's number
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_SENDTO, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]} //nolint:gosec // four
	listener, ended := make(chan int, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: it ends with the thread
		fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&prog)))
		if errno != 0 {
			ended <- fmt.Errorf("seccomp: %w", errno)
			close(listener)
			return
		}
		listener <- int(fd) //nolint:gosec // a descriptor
		ended <- f()
	}()
	fd, ok := <-listener
	if !ok {
		t.Fatal(<-ended)
	}
	defer unix.Close(fd)
	memory, err := os.Open("/proc/self/mem")
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	lists := func(request uint64) bool {
		var header [unix.SizeofNlMsghdr]byte
		_, err := memory.ReadAt(header[:], int64(request)) //nolint:gosec // an address
		return err == nil && binary.NativeEndian.Uint16(header[6:])&unix.NLM_F_DUMP == unix.NLM_F_DUMP
	}
	for n := 0; ; {
		select {
		case err := <-ended:
			return n >= nth, err
		default:
		}
		if ready, perr := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 5); perr != nil && !errors.Is(perr, unix.EINTR) { //nolint:gosec // a descriptor
			t.Fatal(perr)
		} else if ready <= 0 {
			continue
		}
		var ask asked
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&ask))); errno != 0 {
			continue // its thread has ended
		}
		answer := said{id: ask.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
		if !lists(ask.args[1]) {
			if n++; n == nth {
				answer = said{id: ask.id, err: -int32(unix.ENOBUFS)}
			}
		}
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&answer))); errno != 0 {
			t.Fatal(errno)
		}
	}
}

// looks is what two NICs and their routing are like.
func looks(t *testing.T) string {
	t.Helper()
	const script = `for d in own0 own1; do ip -o addr show dev $d scope global | while read -r i n f a r; do echo $n $a; done; ip link show $d | grep -c 'state DOWN' || :; done
cat /proc/sys/net/ipv4/conf/own0/arp_ignore; ip mptcp endpoint | sed 's/ dev .*//'
for f in -4 -6; do ip $f rule; ip $f route show table all | grep -v -e 'table local' -e ^multicast -e fe80 | sort; done`
	out, err := exec.Command("/bin/sh", "-c", script).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.ReplaceAll(string(out), "linkdown", "")
}

// TestRetireGoesOn: whatever of it the kernel refuses once, the next try of a handover ends as though nothing had been,
// or the first one has.
func TestRetireGoesOn(t *testing.T) {
	need.Program(t, "ip")
	for _, keep := range []bool{false, true} {
		var whole string
		for nth := 0; nth < 100; nth++ { // 0: nothing is refused
			over := false
			ok := t.Run(fmt.Sprintf("keep %v, request %d", keep, nth), func(t *testing.T) {
				nics := twoNICs(t)
				nics[0].Main, nics[1].Endpoint = true, 3
				var b Book
				old := []netip.Addr{nics[0].Addrs[0].Addr(), nics[0].Addrs[1].Addr()}
				p := guest.Retire{Addrs: old, MAC: nics[0].MAC, NewMAC: nics[1].MAC, Keep: keep}
				retire := func() (err error) {
					if p.Stay = keep; keep {
						err = b.Retire(p)
					}
					if p.Stay = false; err == nil {
						err = b.Retire(p)
					}
					return err
				}
				next := func() {
					_, err := b.Configure(nics[1])
					if err = cmp.Or(err, b.MakeMain(nics[1].MAC)); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := b.Configure(nics[0]); err != nil {
					t.Fatal(err)
				}
				next()
				broke, err := breaking(t, max(nth, 1), func() error {
					if nth == 0 {
						return nil
					}
					return retire()
				})
				if over = nth > 0 && !broke; over && err != nil {
					t.Fatal(err)
				}
				if nth == 0 || err != nil {
					if nth > 0 {
						next()
					}
					if err := retire(); err != nil {
						t.Fatal(err)
					}
				}
				now := looks(t)
				if nth == 0 {
					whole = now
				} else if now != whole {
					t.Errorf("it said %v; in the end\n%s\nwant\n%s", err, now, whole)
				}
				if err := b.Drop(append(old, nics[1].Addrs[0].Addr(), nics[1].Addrs[1].Addr())); err != nil {
					t.Error(err)
				}
			})
			if over || !ok {
				break
			}
		}
	}
}
