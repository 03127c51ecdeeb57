package proxy_test

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"godwit/transfer/encode"
	"godwit/transfer/paths"
	"godwit/transfer/proxy"
	"godwit/transfer/wire"
	"godwit/vm"
	"godwit/vm/vmtest"
)

// Bad input in the middle of real migrations: where it ends one, each end has one error, and the guest
// runs on at the source and can be moved again.

// linkWith is link with what the configurations say already.
func (p *pair) linkWith(to proxy.DestinationConfig, from proxy.SourceConfig, names ...string) *link {
	p.T.Helper()
	to.Socket = filepath.Join(p.Dst.Dir(), "in.sock")
	if err := p.Dst.PrepareIncoming(p.T.Context(), vm.MigrateOptions{HoldSwitchover: true, URI: "unix:" + to.Socket}); err != nil {
		p.T.Fatal(err)
	}
	return p.connect(to, from, names...)
}

// breaks waits for the end of a migration that fails, at both ends of the link, and sees that the
// errors say what is wanted, nothing is left, and the guest runs on.
func (p *pair) breaks(l *link, source, destination string) {
	p.T.Helper()
	ctx, cancel := context.WithTimeout(p.T.Context(), 20*time.Second)
	defer cancel()
	if progress, err := p.Src.AwaitMigration(ctx); err == nil {
		p.T.Fatalf("it has moved: %+v", progress)
	}
	for what, end := range map[string]struct {
		done <-chan struct{}
		err  func() error
		want string
	}{"source": {l.src.Done(), l.src.Err, source}, "destination": {l.dst.Done(), l.dst.Err, destination}} {
		select {
		case <-end.done:
		case <-ctx.Done():
			p.T.Fatalf("%s is still open: source %+v, destination %+v", what, l.src.Stats(), l.dst.Stats())
		}
		err := end.err()
		if err == nil || !strings.Contains(err.Error(), end.want) || strings.Contains(err.Error(), "\n") {
			p.T.Errorf("%s: %v, want %q", what, err, end.want)
		}
	}
	nothingLeft(p.T, p.Dir, "out.sock")
	p.runsOn()
	p.Dst.Kill() //nolint:errcheck // it may have ended
	p.Wait()
}

// runsOn sees that the guest at the source does its work.
func (p *pair) runsOn() {
	p.T.Helper()
	p.Status(p.Src, vm.Running)
	if err := vmtest.AwaitPasses(p.Serial(p.Src), 2, 20*time.Second); err != nil {
		p.T.Fatal(err)
	}
}

// copying moves the guest slowly, and returns when some of it is there.
func (p *pair) copying(l *link) {
	p.T.Helper()
	l.limit.Set(4 << 20)
	p.migrate(l)
	p.until(l, "some frames", func(s proxy.Stats) bool { return s.Stats.Acked > 1<<20 })
}

// hello is the first word of a lane for a migration, whatever follows.
func hello(id paths.Identity, more ...[]byte) []byte {
	out := wire.AppendHello(nil, wire.Hello{Lowest: wire.Oldest, Highest: wire.Version, Migration: id.Migration, Key: id.Key, Path: "lie"})
	for _, m := range more {
		out = append(out, m...)
	}
	return out
}

// intrude says something at the lanes' door, closes its half where it is over, and returns when the
// other end has hung up.
func (l *link) intrude(t *testing.T, lie []byte, over bool) {
	t.Helper()
	conn, err := net.Dial("tcp", l.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(15 * time.Second)) //nolint:errcheck // it does not fail
	go func() {
		conn.Write(lie) //nolint:errcheck // it may be cut off
		if over {
			conn.(*net.TCPConn).CloseWrite() //nolint:errcheck // as above
		}
	}()
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
		t.Errorf("the lane lives on: %v", err)
	}
}

func isTimeout(err error) bool {
	var late net.Error
	return errors.As(err, &late) && late.Timeout()
}

// TestIntruders come to the lanes' door while a guest moves: without the key, or with it and
// with messages that cannot be. They are hung up on, and nobody else notices.
func TestIntruders(t *testing.T) {
	p := newPair(t, writing)
	l := p.link("a", "b")
	p.copying(l)
	frame := wire.AppendFrame(nil, 1, []byte("another content of a frame that is there already"))
	stranger := paths.Identity{Migration: l.id.Migration, Key: wire.Key{99}}
	var all sync.WaitGroup
	for name, c := range map[string]struct {
		lie  []byte
		over bool
	}{
		"another key":                  {hello(stranger, frame), false},
		"another migration":            {hello(paths.Identity{Migration: "m-2", Key: l.id.Key}), false},
		"nothing at all":               {nil, false},
		"noise":                        {[]byte("GET / HTTP/1.1\r\n\r\n"), false},
		"a hello that is cut short":    {hello(l.id)[:30], true},
		"a hello that has no end":      {[]byte{byte(wire.KindHello), 0xff, 0xff, 0xff, 0xff}, false},
		"a second hello":               {hello(l.id, hello(l.id)), false},
		"a length beyond all bounds":   {hello(l.id, []byte{byte(wire.KindFrame), 0x7f, 0xff, 0xff, 0xff}), false},
		"half a frame":                 {hello(l.id, frame[:20]), true},
		"a frame far ahead":            {hello(l.id, wire.AppendFrame(nil, 1<<40, nil)), false},
		"a control far ahead":          {hello(l.id, wire.AppendControl(nil, 1<<40, wire.TopicTail, nil)), false},
		"what the source never says":   {hello(l.id, wire.AppendWelcome(nil, wire.Version)), false},
		"frames that nobody has sent":  {hello(l.id, wire.AppendAck(nil, wire.Ack{Frames: 1})), false},
		"controls that nobody sent":    {hello(l.id, wire.AppendAck(nil, wire.Ack{Controls: 1 << 20})), false},
		"a frame again, 10 000 times":  {hello(l.id, repeated(frame, 10_000)), true},
		"a flood of empty messages":    {hello(l.id, repeated([]byte{0, 0, 0, 0, 0}, 10_000)), false},
		"the first control once more ": {hello(l.id, wire.AppendControl(nil, 1, wire.TopicPrologue, []byte("another"))), true},
	} {
		all.Go(func() {
			l.intrude(t, c.lie, c.over)
			if err := l.dst.Err(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	all.Wait()
	l.limit.Set(0)
	p.until(l, "rounds", func(s proxy.Stats) bool { return s.Round >= 3 })
	p.finish(l)
}

func repeated(message []byte, times int) (out []byte) {
	for range times {
		out = append(out, message...)
	}
	return out
}

// TestLyingSource: what a peer that has the key says in place of the source ends the migration.
func TestLyingSource(t *testing.T) {
	p := newPair(t, writing)
	frame := func(body ...byte) []byte { return wire.AppendFrame(nil, 1<<19, body) } // which is not taken soon
	control := func(topic wire.Topic, body []byte) []byte { return wire.AppendControl(nil, 2, topic, body) }
	for name, c := range map[string]struct {
		lie  []byte
		want string
	}{
		"a frame of noise":          {frame([]byte("noise")...), "corrupt"},
		"a section cut short":       {frame(2, 0, 200, 1, 1), "corrupt"},
		"pages that are not":        {frame(1, 0, 6, 1, 0xff, 0xff, 0xff, 0x7f, 1), "corrupt"},
		"a section of 4 GiB":        {frame(1, 2, 0xff, 0xff, 0xff, 0xff, 0x0f, 1, 0), "corrupt"},
		"a second prologue":         {control(wire.TopicPrologue, nil), "second prologue"},
		"what only goes back":       {control(wire.TopicReturn, nil), "topic"},
		"an end of a wrong length":  {control(wire.TopicEnd, nil), "end: wrong length"},
		"a guest to run at once":    {control(wire.TopicRun, wire.AppendRun(nil, wire.Start{})), "out of place"},
		"bytes of no opaque stream": {control(wire.TopicRaw, []byte("raw")), "not opaque"},
	} {
		t.Log(name)
		l := p.link("a", "b")
		p.copying(l)
		l.intrude(t, hello(l.id, c.lie), false)
		p.breaks(l, "the other end: ", c.want)
	}
	l := p.link("a")
	p.migrate(l)
	p.until(l, "a round", func(s proxy.Stats) bool { return s.Round >= 2 })
	p.finish(l)
}

// TestWrongKey: the source's own lanes have another key than the destination was told. That is
// found before QEMU is asked for anything.
func TestWrongKey(t *testing.T) {
	p := newPair(t, writing)
	l := p.linkWith(proxy.DestinationConfig{Mirror: p.Dir}, proxy.SourceConfig{Identity: paths.Identity{Migration: "m-1", Key: wire.Key{99}}}, "a", "b")
	select {
	case <-l.src.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("it tries on")
	}
	if err := l.src.Err(); err == nil || !strings.Contains(err.Error(), "not the one that is expected here") {
		t.Errorf("source: %v", err)
	}
	if err := p.Src.Migrate(t.Context(), l.opts); err == nil {
		t.Error("QEMU finds somebody to send to")
	}
	p.runsOn()
	if l.dst.Err() != nil {
		t.Errorf("a stranger ends the destination: %v", l.dst.Err())
	}
}

// liar is a peer that is taken for the destination's end: it waits for the first frame, and lies.
func liar(t *testing.T, lie []byte) *net.TCPAddr {
	t.Helper()
	return answering(t, func(conn net.Conn) {
		defer conn.Close()
		said := false
		for {
			kind, body, err := wire.Read(conn, nil)
			var answer []byte
			switch {
			case err != nil:
				return
			case kind == wire.KindHello:
				answer = wire.AppendWelcome(nil, wire.Version)
			case kind == wire.KindControl:
				if number, _, _, err := wire.ParseControl(body); err == nil {
					answer = wire.AppendAck(nil, wire.Ack{Controls: number})
				}
			case kind == wire.KindFrame && !said:
				answer, said = lie, true
			}
			if _, err := conn.Write(answer); err != nil {
				return
			}
		}
	})
}

// answering serves each connection to an address by answer, until the test ends; it waits for them.
func answering(t *testing.T, answer func(net.Conn)) *net.TCPAddr {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serving := acceptAll(listener, answer)
	t.Cleanup(func() {
		listener.Close()
		serving.Wait()
	})
	return listener.Addr().(*net.TCPAddr)
}

// acceptAll serves what connects to a listener, until that is closed; the group ends when all is served.
func acceptAll(listener net.Listener, serve func(net.Conn)) *sync.WaitGroup {
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { serve(conn) })
		}
	})
	return &serving
}

// TestLyingDestination: what a peer says in place of the destination ends a real source's migration.
func TestLyingDestination(t *testing.T) {
	p := newPair(t, writing)
	control := func(topic wire.Topic, body []byte) []byte { return wire.AppendControl(nil, 1, topic, body) }
	var flood []byte
	for n := range uint64(2 * encode.MostOffered / wire.MaxOffer) {
		flood = wire.AppendControl(flood, n+1, wire.TopicOffer, wire.AppendOffer(nil, wire.Offer{Set: 1, Hashes: make([]uint64, wire.MaxOffer)}))
	}
	for name, c := range map[string]struct {
		lie  []byte
		want string
	}{
		"pages missed of no frame":  {control(wire.TopicMiss, wire.AppendMiss(nil, 1<<40, []uint64{1})), "never sent"},
		"what only goes there":      {control(wire.TopicTail, nil), "topic"},
		"a fault before it may":     {control(wire.TopicFault, wire.AppendFault(nil, []uint64{1})), "before the guest runs"},
		"noise for QEMU":            {control(wire.TopicReturn, []byte("\xff\xff\x00\x00")), "return path"},
		"more offers than there be": {flood, "contents offered"},
		"an offer of a false size":  {control(wire.TopicOffer, []byte("\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff")), "offer of"},
		"a farewell in the middle":  {wire.AppendBye(nil, "it does not want it"), "it does not want it"},
	} {
		t.Log(name)
		to, dialer := liar(t, c.lie), new(net.Dialer)
		src, err := proxy.ListenSource(context.Background(), proxy.SourceConfig{
			Socket: filepath.Join(p.Dir, "out.sock"), Identity: paths.Identity{Migration: "m-1"}, Spill: p.Dir, Buffer: 32 << 20,
			Lanes: []paths.Lane{{Path: "a", Open: func(ctx context.Context) (net.Conn, error) { return dialer.DialContext(ctx, "tcp", to.String()) }}},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		err = p.Src.Migrate(ctx, vm.MigrateOptions{HoldSwitchover: true, URI: "unix:" + filepath.Join(p.Dir, "out.sock")})
		if err == nil { // it may be over before QEMU is asked how it goes
			_, err = p.Src.AwaitMigration(ctx)
		}
		if err == nil {
			t.Fatalf("%s: it has moved", name)
		}
		select {
		case <-src.Done():
		case <-ctx.Done():
			t.Fatalf("%s: it goes on", name)
		}
		cancel()
		if err := src.Err(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: source: %v, want %q", name, err, c.want)
		}
		p.runsOn()
	}
}
