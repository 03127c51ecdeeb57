package agent

import (
	"testing"

	"godwit/migration"
)

func TestBandwidthFollowsStreams(t *testing.T) {
	var b bandwidth
	b.set(800)
	var early, late int64
	b.follow(func(bytes int64) { early = bytes })
	if early != 100 {
		t.Errorf("a stream that begins gets %d bytes/s", early)
	}
	b.set(1600)
	leave := b.follow(func(bytes int64) { late = bytes })
	if early != 200 || late != 200 || b.get() != 1600 {
		t.Errorf("after a change: %d, %d bytes/s, %d bit/s", early, late, b.get())
	}
	if b.set(1); early != 1 || late != 1 {
		t.Errorf("with the least limit: %d, %d bytes/s", early, late)
	}
	if b.set(0); early != 0 || late != 0 {
		t.Errorf("without a limit: %d, %d bytes/s", early, late)
	}
	leave()
	leave()
	if b.set(800); early != 100 || late != 0 || len(b.streams) != 1 {
		t.Errorf("one has left: %d, %d bytes/s, %d streams", early, late, len(b.streams))
	}
}

func TestBufferOfARequest(t *testing.T) {
	for name, c := range map[string]struct {
		req migration.Request
		ok  bool
	}{
		"none":       {migration.Request{}, true},
		"some":       {migration.Request{Buffer: 8 << 20}, true},
		"too little": {migration.Request{Buffer: 4096}, false},
		"negative":   {migration.Request{Buffer: -1}, false},
		"of QEMU":    {migration.Request{Buffer: 8 << 20, Transfer: "qemu-tcp"}, false},
	} {
		c.req.Guest, c.req.To = "web", "rome"
		if err := CheckRequest(&c.req); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
