package tunnel

import (
	"bytes"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun/tuntest"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// farApart passes datagrams between two sockets, each of which takes it for the other end,
// after a while.
func farApart(t *testing.T, after time.Duration) (here, there netip.AddrPort, join func(a, b netip.AddrPort)) {
	t.Helper()
	var conns [2]*net.UDPConn
	for i := range conns {
		c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		conns[i] = c
	}
	join = func(a, b netip.AddrPort) {
		for i, to := range []netip.AddrPort{b, a} {
			go func() {
				for buf := make([]byte, 2048); ; {
					n, err := conns[i].Read(buf)
					if err != nil {
						return
					}
					packet := append([]byte(nil), buf[:n]...)
					time.AfterFunc(after, func() { _, _ = conns[1-i].WriteToUDPAddrPort(packet, to) })
				}
			}()
		}
	}
	at := func(i int) netip.AddrPort { return conns[i].LocalAddr().(*net.UDPAddr).AddrPort() }
	return at(0), at(1), join
}

// freePorts are two of loopback that nobody has.
func freePorts(t *testing.T) (ports [2]netip.AddrPort) {
	t.Helper()
	for i := range ports {
		c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close() // not before both are known: they are not to be the same
		ports[i] = c.LocalAddr().(*net.UDPAddr).AddrPort()
	}
	return ports
}

// farEnds are two of one tunnel in user space, far from each other, of which the first begins again where handshakes cross.
func farEnds(t *testing.T, oneWay time.Duration) (tuns [2]*tuntest.ChannelTUN, local [2]netip.AddrPort, crossed [2]*collisions) {
	t.Helper()
	relayA, relayB, join := farApart(t, oneWay)
	var keys [2]wgtypes.Key
	for i := range keys {
		keys[i], _ = wgtypes.GeneratePrivateKey()
	}
	slices.SortFunc(keys[:], func(a, b wgtypes.Key) int {
		x, y := a.PublicKey(), b.PublicKey()
		return bytes.Compare(x[:], y[:])
	})
	local = freePorts(t)
	remote := [2]netip.AddrPort{relayA, relayB}
	join(local[0], local[1])
	for i := range tuns {
		tuns[i] = tuntest.NewChannelTUN()
		b := &bind{local: local[i]}
		p := inProcess{device.NewDevice(tuns[i].TUN(), b, device.NewLogger(device.LogLevelSilent, "")), &b.crossed}
		t.Cleanup(p.close)
		if err := p.configure(Config{Local: local[i], Remote: remote[i], PrivateKey: keys[i], PeerKey: keys[1-i].PublicKey()}); err != nil {
			t.Fatal(err)
		}
		if err := p.dev.Up(); err != nil {
			t.Fatal(err)
		}
		crossed[i] = &b.crossed
	}
	return tuns, local, crossed
}

var insides = [2]netip.Addr{netip.MustParseAddr("169.254.1.1"), netip.MustParseAddr("169.254.1.2")}

// TestCrossedHandshakes: two ends that send at once over a long way have a session after two
// RTTs, not after the five seconds in which neither tries again.
func TestCrossedHandshakes(t *testing.T) {
	const oneWay = 40 * time.Millisecond
	tuns, _, _ := farEnds(t, oneWay)
	begun := time.Now()
	for i := range tuns {
		tuns[i].Outbound <- tuntest.Ping(insides[1-i], insides[i])
	}
	for i := range tuns {
		select {
		case <-tuns[i].Inbound:
		case <-time.After(4 * time.Second):
			t.Fatalf("end %d: nothing came within 4 s: the handshakes crossed, and nobody began again", i)
		}
	}
	if took := time.Since(begun); took < 2*oneWay {
		t.Errorf("there after %v: the handshakes cannot have crossed", took)
	}
}

// TestForgedHandshakes: somebody who knows nothing but where an end listens, and sends what looks like messages of
// handshakes, has it give up none: over a way longer than crossed a session would begin late, or never.
func TestForgedHandshakes(t *testing.T) {
	tuns, local, crossed := farEnds(t, 100*time.Millisecond)
	var times atomic.Int64
	again := crossed[0].again
	crossed[0].mu.Lock()
	crossed[0].again = func(since time.Time) { times.Add(1); again(since) }
	crossed[0].mu.Unlock()
	forger, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(local[0]))
	if err != nil {
		t.Fatal(err)
	}
	defer forger.Close()
	ended := make(chan struct{})
	defer func() { <-ended }()
	over := make(chan struct{})
	defer close(over)
	go func() {
		defer close(ended)
		for {
			forger.Write(handshake(device.MessageInitiationType, device.MessageInitiationSize)) //nolint:errcheck // the next is as good
			forger.Write(handshake(device.MessageResponseType, device.MessageResponseSize))     //nolint:errcheck // as above
			select {
			case <-over:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	tuns[0].Outbound <- tuntest.Ping(insides[1], insides[0])
	select {
	case <-tuns[1].Inbound:
	case <-time.After(20 * time.Second):
		t.Error("nothing came within 20 s")
	}
	if n := times.Load(); n > 0 {
		t.Errorf("a handshake began again %d times", n)
	}
}

// handshake is what looks like a message of one.
func handshake(kind byte, size int) []byte {
	packet := make([]byte, size)
	packet[0] = kind
	return packet
}

// TestWhoBeginsAgain: only a late answer to an initiation that was given up is a crossing, and
// one end of the two acts on it, once.
func TestWhoBeginsAgain(t *testing.T) {
	ours, _ := wgtypes.GeneratePrivateKey()
	public := device.NoisePublicKey(ours.PublicKey())
	var macs device.CookieGenerator
	macs.Init(public)
	initiation := handshake(device.MessageInitiationType, device.MessageInitiationSize)
	response := handshake(device.MessageResponseType, device.MessageResponseSize)
	data := handshake(device.MessageTransportType, device.MessageResponseSize)
	macs.AddMacs(initiation)
	macs.AddMacs(response)
	for name, c := range map[string]struct {
		events string // i, r, d: sent; I, R, D: received
		times  int
	}{
		"crossed":                     {"iIrR", 1},
		"read before ours has left":   {"iIRr", 1},
		"answered":                    {"iR", 0},
		"asked and answered in turn":  {"iRIr", 0},
		"only asked":                  {"Ir", 0},
		"an answer twice":             {"iIrRR", 1},
		"data":                        {"iIrDd", 0},
		"crossed twice":               {"iIrRiIrR", 2},
		"lost, then asked by another": {"iIrdD", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var times atomic.Int64
				k := collisions{again: func(time.Time) { times.Add(1) }}
				k.ours.Init(public)
				for _, e := range c.events {
					switch e {
					case 'i':
						k.sent(initiation)
					case 'r':
						k.sent(response)
					case 'd':
						k.sent(data)
					case 'I':
						k.received(initiation)
					case 'R':
						k.received(response)
					case 'D':
						k.received(data)
					}
				}
				time.Sleep(2 * crossed)
				synctest.Wait()
				if n := int(times.Load()); n != c.times {
					t.Errorf("%d times: want %d", n, c.times)
				}
			})
		})
	}
	var keys [2]wgtypes.Key
	for i := range keys {
		keys[i], _ = wgtypes.GeneratePrivateKey()
	}
	acts := 0
	for i := range keys {
		var k collisions
		k.watch(nil, Config{PrivateKey: keys[i], PeerKey: keys[1-i].PublicKey()})
		if k.again != nil {
			acts++
		}
	}
	if acts != 1 {
		t.Errorf("%d ends of two begin again", acts)
	}
}
