package address

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// busyFor, and busyForOne for each connection, is how long packets come before other work of
// the guest at most, after connections were told of an address or to leave one.
const (
	busyFor    = 15 * time.Second
	busyForOne = 10 * time.Millisecond
)

// manyAre have more answers than ksoftirqd takes in by its share of a processor. With fewer,
// putting it first would only keep what is to read them from reading.
const manyAre = 200

// announceTimeout is how long the kernel waits for the echo of an announcement until it sends
// it again, s: one of the settings of helper.go, where it is the least.
const (
	announceTimeout = "/proc/sys/net/mptcp/add_addr_timeout"
	leastTimeout    = 1
	mostTimeout     = 8 // who was not reached waits for that; of thousands each has its answer taken in before the next is told
	// echoesPerSecond of an emulated guest on a busy machine.
	echoesPerSecond = 250
)

// crowd makes ready for what thousands of connections do when they are told of an address:
// their answers are taken in first, and nobody is told again as long as answers may only be
// waiting. It is left as it is where the kernel refuses.
func (b *Book) crowd() {
	n := b.receiveFirst()
	has, err := os.ReadFile(announceTimeout)
	if err != nil {
		return
	}
	now, err := strconv.Atoi(strings.TrimSpace(string(has)))
	if err != nil {
		return
	}
	want := patience(n, now, b.waits)
	if want != now && os.WriteFile(announceTimeout, []byte(strconv.Itoa(want)), 0o644) == nil {
		b.waits = want
	}
}

// patience is the time-out for so many connections, s, where it is now, and ours was what we
// made of it last, or 0. A longer one that somebody chose stays.
func patience(connections, now, ours int) int {
	want := min(mostTimeout, leastTimeout+connections/echoesPerSecond)
	if now > want && now != ours {
		return now
	}
	return want
}

// receiveFirst has the answers of connections taken in before all else, for a while, and says
// how many there may be.
func (b *Book) receiveFirst() (connections int) {
	if connections = sockets(); connections < manyAre {
		return connections
	}
	b.receivers.Raise(busyFor + time.Duration(connections)*busyForOne)
	return connections
}

// sockets is how many TCP sockets are in use: what the kernel counts anyway. Those of a listener on
// [::], also for clients of IPv4, are among those of IPv6.
func sockets() int {
	return inUse("/proc/thread-self/net/sockstat", "TCP: inuse %d") + inUse("/proc/thread-self/net/sockstat6", "TCP6: inuse %d")
}

// inUse is the number in the line of the file that is like format; 0 where there is none.
func inUse(path, format string) int {
	content, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(content) {
		var n int
		if _, err := fmt.Sscanf(string(line), format, &n); err == nil {
			return n
		}
	}
	return 0
}
