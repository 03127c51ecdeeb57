package tunnel

import "golang.zx2c4.com/wireguard/tun"

// steady is a tun device of WireGuard in user space that is up from when we say so until it
// is closed. wireguard-go also follows the link: one that is down ends every session and
// closes the socket. It looks at the link from a goroutine that starts with the device, before
// we set the link up; what it saw may come after we have, and the next look is a second later.
type steady struct {
	tun.Device
	events chan tun.Event
}

// keptUp returns the device without what it says of its link.
func keptUp(d tun.Device) steady {
	s := steady{d, make(chan tun.Event)}
	go func() {
		defer close(s.events)
		for e := range d.Events() {
			if e &= tun.EventMTUUpdate; e != 0 {
				s.events <- e
			}
		}
	}()
	return s
}

// Events tells of changes of the MTU alone.
func (s steady) Events() <-chan tun.Event { return s.events }
