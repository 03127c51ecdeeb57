package hold_test

import (
	"bytes"
	"fmt"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"godwit/internal/child"
	"godwit/internal/need"
	"godwit/netstate/hold"
	"godwit/netstate/internal/nettest"
)

func init() { child.Register("resends", resends) }

// resends sends frames into a device of this namespace, args[0].
func resends(args []string) int {
	sent, err := hold.Resend(numbered(resent), args[0])
	if err != nil {
		fmt.Println(sent, err)
		return 1
	}
	return 0
}

const resent = 300 // of a queue of 400, which is sent into in quarters: the last of them wait

// TestResendOfOneThatStood: a device that took nothing while who sends into it stood still is waited for after that.
func TestResendOfOneThatStood(t *testing.T) {
	n, via := hostBefore(t)
	var said bytes.Buffer
	cmd := child.Command("resends", "t2a")
	cmd.Stdout = &said
	n.Do("h", cmd.Start)
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	nettest.Eventually(t, "it sends", 10*time.Second, func() (sends bool) {
		control(t, via, func(fd int) {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			sends = n > 0 && err == nil
		})
		return sends
	})
	time.Sleep(100 * time.Millisecond) // it waits
	need.Stop(t, cmd.Process.Pid)
	time.Sleep(1200 * time.Millisecond) // for longer than a device may take nothing
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond) // it has looked, and nothing was taken
	for p := need.Patient(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, err := hold.ReadLeft(via); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("%v: %s", err, &said)
			}
			return
		default:
		}
		if p.Over() {
			t.Fatal("it does not end")
		}
	}
}
