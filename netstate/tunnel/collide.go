package tunnel

import (
	"bytes"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.zx2c4.com/wireguard/device"
)

// collisions sees handshakes that cross. Two ends that have something to send at once, within
// an RTT, each answer the other's initiation, and by that give up their own: neither can use the
// answer it gets, and both wait for five seconds (REKEY_TIMEOUT: WireGuard paper, §6.1), after
// which they may cross again. One of the two, the same at both ends, begins again at once. It
// looks at what passes the socket, and keeps nothing back.
type collisions struct {
	ours device.CookieChecker // whether who sent a handshake's message knows this end's public key

	mu        sync.Mutex
	initiated time.Time            // when we sent an initiation which nobody has answered
	asked     bool                 // since then one came
	again     func(asOf time.Time) // nil: the other end begins again
}

// crossed is how long an end waits before it begins again: the other takes one initiation
// in 20 ms (device.HandshakeInitationRate), with a time of steps of 17 ms (tai64n).
const crossed = 50 * time.Millisecond

// sent sees a packet that leaves.
func (c *collisions) sent(packet []byte) {
	if kind(packet) != device.MessageInitiationType {
		return
	}
	c.mu.Lock()
	c.initiated, c.asked = time.Now(), false
	c.mu.Unlock()
}

// received sees a packet that came. They are read before they are worked on, so that an answer
// may be here before ours to what came before it has left. What only looks like a handshake's message anybody may
// send, and no session would ever begin over a way longer than crossed.
func (c *collisions) received(packet []byte) {
	what := kind(packet)
	if what == 0 || !c.ours.CheckMAC1(packet) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if what == device.MessageInitiationType {
		c.asked = true
		return
	}
	if since := c.initiated; time.Since(since) < device.RekeyTimeout && c.asked && c.again != nil {
		again := c.again
		time.AfterFunc(crossed, func() { again(since) })
	}
	c.initiated, c.asked = time.Time{}, false
}

// kind is the type of a handshake message, 0 for all else.
func kind(packet []byte) byte {
	switch {
	case len(packet) == device.MessageInitiationSize && packet[0] == device.MessageInitiationType:
		return device.MessageInitiationType
	case len(packet) == device.MessageResponseSize && packet[0] == device.MessageResponseType:
		return device.MessageResponseType
	}
	return 0
}

// watch sets what is done when handshakes with the other end cross: the end with the lower key
// begins again, unless there is a session after all: an initiation may be an old one that somebody sends once more.
func (c *collisions) watch(dev *device.Device, cfg Config) {
	own := cfg.PrivateKey.PublicKey()
	c.ours.Init(device.NoisePublicKey(own))
	var again func(time.Time)
	if bytes.Compare(own[:], cfg.PeerKey[:]) < 0 {
		again = func(since time.Time) {
			peer := dev.LookupPeer(device.NoisePublicKey(cfg.PeerKey))
			if peer == nil || lastHandshake(dev).After(since) {
				return
			}
			peer.ExpireCurrentKeypairs() // and with them the time of the last handshake
			_ = peer.SendHandshakeInitiation(false)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.initiated, c.asked, c.again = time.Time{}, false, again
}

// lastHandshake is when the one peer's last session began.
func lastHandshake(dev *device.Device) time.Time {
	said, err := dev.IpcGet()
	if err != nil {
		return time.Time{}
	}
	var seconds, nanoseconds int64
	for _, line := range strings.Split(said, "\n") {
		key, value, _ := strings.Cut(line, "=")
		switch n, err := strconv.ParseInt(value, 10, 64); {
		case err != nil:
		case key == "last_handshake_time_sec":
			seconds = n
		case key == "last_handshake_time_nsec":
			nanoseconds = n
		}
	}
	return time.Unix(seconds, nanoseconds)
}
