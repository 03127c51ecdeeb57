package proxy

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"godwit/transfer/encode"
	"godwit/transfer/pages"
	"godwit/transfer/paths"
)

// carrying is a Source, for a bubble, of so many pages, with a lane that is expected to carry rate bytes per second.
func carrying(t *testing.T, rate int64, total uint64) *Source {
	t.Helper()
	return carryingTo(t, rate, total, paths.ReceiverConfig{})
}

// carryingTo is such a Source to another end.
func carryingTo(t *testing.T, rate int64, total uint64, config paths.ReceiverConfig) *Source {
	t.Helper()
	config.Migration = "m-1"
	to := paths.NewReceiver(t.Context(), config)
	s := &Source{ctx: t.Context(), hurried: make(chan struct{}), store: pages.New(total, pages.NewArena(int64(total)*pages.Size, nil, nil))} //nolint:gosec // few
	open := func(context.Context) (net.Conn, error) {
		here, there := net.Pipe()
		go to.Serve(context.Background(), there) //nolint:errcheck // the other end tells
		return here, nil
	}
	s.sender = paths.NewSender(t.Context(), paths.SenderConfig{
		Identity: config.Identity, Control: s.control, Acked: s.frameAcked, Lanes: []paths.Lane{{Path: "a", Rate: rate, Open: open}},
	})
	t.Cleanup(func() {
		s.sender.Close() //nolint:errcheck // the test is over
		to.Close()       //nolint:errcheck // as above
	})
	for s.sender.Stats().Goodput != rate {
		time.Sleep(time.Millisecond)
	}
	return s
}

// TestLevelFollowsTheLink: pages are coded at the level that suits what the lanes carry, and what the processors have
// left; but nobody who waits for a page waits for the last bytes of it to be saved.
func TestLevelFollowsTheLink(t *testing.T) {
	const slow, quick, endless = 64 << 10, 40e6, 1 << 40 // bytes per second
	for name, c := range map[string]struct {
		rate                int64
		spare               float64 // processors that nobody uses
		late                bool    // who codes hardly gets one
		urgent, stop, early bool
		want                encode.Level
	}{
		"a slow link":                             {rate: slow, want: encode.Zstd7},
		"a page that is waited for":               {rate: slow, urgent: true, want: encode.Zstd3},
		"the pause":                               {rate: slow, stop: true, want: encode.Zstd3},
		"the rest of a guest that runs":           {rate: slow, stop: true, early: true, want: encode.Zstd7},
		"a fast link":                             {rate: endless, want: encode.Off},
		"a link between":                          {rate: quick, want: encode.Zstd1},
		"a link between, and processors to spare": {rate: quick, spare: 4, want: encode.Zstd3},
		"a link between, and no processor":        {rate: quick, late: true, want: encode.Off},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := carrying(t, c.rate, 2)
				s.early.Store(c.early)
				if c.stop {
					close(s.hurried)
				}
				frames := s.newFrameCoder()
				frames.machine = spare{at: time.Now().Add(time.Hour), cores: c.spare} // that is no older than it may be
				known := someContent(1)                                               // is not packed, and says nothing of levels
				code := func() encode.Level {
					before := s.Stats().Levels
					time.Sleep(time.Second) // there is time left
					frames.encode(&pages.Frame{Number: 1, Urgent: c.urgent, Pages: []pages.Page{{Data: known, Base: known, Landed: true}}})
					for level, n := range s.Stats().Levels {
						if n > before[level] {
							return encode.Level(level) //nolint:gosec // below Levels
						}
					}
					t.Fatal("no level is counted")
					return 0
				}
				code() // what the processors have left is known after it
				if c.late {
					frames.share.add(0, time.Minute, time.Minute)
				}
				if got := code(); got != c.want {
					t.Errorf("coded at %v, want %v", got, c.want)
				}
			})
		})
	}
}

// TestLevelFollowsThePages: noise is not worth the work that pages usually are on a slow link.
func TestLevelFollowsThePages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := carrying(t, 64<<10, pages.MaxPages)
		frames, rng := s.newFrameCoder(), rand.New(rand.NewPCG(1, 1))
		for n := 0; s.Stats().Levels[encode.Zstd7] == n; n++ {
			if n == 200 {
				t.Fatalf("%d frames of noise were coded at %v", n, encode.Zstd7)
			}
			f := &pages.Frame{Number: 1}
			for page := range uint64(pages.MaxPages) {
				data := make([]byte, pages.Size)
				for at := 0; at < len(data); at += 8 {
					binary.NativeEndian.PutUint64(data[at:], rng.Uint64())
				}
				f.Pages = append(f.Pages, pages.Page{Number: page, Data: data})
			}
			frames.encode(f)
		}
	})
}
