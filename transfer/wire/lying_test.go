package wire

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestLyingHello: a lane that says of itself what cannot be is refused.
func TestLyingHello(t *testing.T) {
	good := Hello{Lowest: Oldest, Highest: Version, Migration: "m-1", Path: "a-b"}
	said := func(change func(*Hello)) []byte {
		h := good
		change(&h)
		return AppendHello(nil, h)[HeaderSize:]
	}
	whole := said(func(*Hello) {})
	if h, err := ParseHello(whole); err != nil || h != good {
		t.Fatalf("%+v %v", h, err)
	}
	long := bytes.Replace(whole, []byte("\x03m-1"), append([]byte{maxName + 1}, bytes.Repeat([]byte{'m'}, maxName+1)...), 1)
	for name, bad := range map[string][]byte{
		"something else": append([]byte("GET /"), whole...), "cut": whole[:len(whole)-1], "longer": append(bytes.Clone(whole), 0), "a long name": long,
		"version 0": said(func(h *Hello) { h.Lowest = 0 }), "none": said(func(h *Hello) { h.Lowest, h.Highest = 3, 2 }),
		"of no migration": said(func(h *Hello) { h.Migration = "" }),
	} {
		if _, err := ParseHello(bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if h, err := ParseHello(said(func(h *Hello) { h.Path = strings.Repeat("p", maxName+1) })); err != nil || h.Path != strings.Repeat("p", maxName) {
		t.Errorf("a name that was to be cut: %+v %v", h, err)
	}
	for _, h := range []Hello{{Lowest: Version, Highest: Version + 1}, {Lowest: 1, Highest: Oldest}} {
		if v, err := h.Answer("", Key{}); err != nil || v != min(h.Highest, Version) {
			t.Errorf("%+v: %d, %v", h, v, err)
		}
	}
}

// TestNumbers: frames and controls are numbered from 1 on, and come back as they were.
func TestNumbers(t *testing.T) {
	if n, payload, err := ParseFrame(AppendFrame(nil, 1, nil)[HeaderSize:]); n != 1 || len(payload) != 0 || err != nil {
		t.Errorf("%d %q %v", n, payload, err)
	}
	if n, topic, rest, err := ParseControl(AppendControl(nil, 1, TopicEnd, nil)[HeaderSize:]); n != 1 || topic != TopicEnd || len(rest) != 0 || err != nil {
		t.Errorf("%d %d %q %v", n, topic, rest, err)
	}
	if n, payload, err := ParseFrame(AppendFrame(nil, 1<<40, []byte("xy"))[HeaderSize:]); n != 1<<40 || string(payload) != "xy" || err != nil {
		t.Errorf("%d %q %v", n, payload, err)
	}
	for name, bad := range map[string][]byte{"0": AppendFrame(nil, 0, []byte("xy"))[HeaderSize:], "short": make([]byte, frameHead-1)} {
		if _, _, err := ParseFrame(bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("frame %s: %v", name, err)
		}
	}
	for name, bad := range map[string][]byte{"0": AppendControl(nil, 0, TopicEnd, nil)[HeaderSize:], "short": append(make([]byte, controlHead-2), 1)} {
		if _, _, _, err := ParseControl(bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("control %s: %v", name, err)
		}
	}
	for _, bad := range [][]byte{nil, {1, 2}} {
		if _, err := ParseWelcome(bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("welcome of %d bytes: %v", len(bad), err)
		}
	}
}

// TestCutControls: a control of which something is missing, or which has more than it says, is refused.
func TestCutControls(t *testing.T) {
	for name, c := range map[string]struct {
		whole []byte
		parse func([]byte) error
		free  int // bytes at its end of which there may be any number
	}{
		"command": {AppendCommand(nil, 11, []byte("x")), func(b []byte) error { _, _, err := ParseCommand(b); return err }, 1},
		"opaque":  {AppendOpaque(nil, Opaque{true, 7, "why"}), func(b []byte) error { _, err := ParseOpaque(b); return err }, 3},
		"end":     {AppendEnd(nil, End{9, 3}), func(b []byte) error { _, err := ParseEnd(b); return err }, 0},
		"run":     {AppendRun(nil, Start{Tail: 8, Devices: 3, Last: 9}), func(b []byte) error { _, err := ParseRun(b); return err }, 0},
		"miss":    {AppendMiss(nil, 9, []uint64{4, 5}), func(b []byte) error { _, _, err := ParseMiss(b); return err }, 0},
		"fault":   {AppendFault(nil, []uint64{4, 5}), func(b []byte) error { _, err := ParseFault(b); return err }, 0},
		"discard": {AppendDiscard(nil, []Run{{3, 1}, {7, 2}}), func(b []byte) error { _, err := ParseDiscard(b); return err }, 0},
		"absent":  {AppendAbsent(nil, []Run{{3, 1}, {7, 2}}), func(b []byte) error { _, err := ParseAbsent(b); return err }, 0},
		"wanted":  {AppendWanted(nil, []Run{{3, 1}}, true), func(b []byte) error { _, _, err := ParseWanted(b); return err }, 0},
		"offer":   {AppendOffer(nil, Offer{Set: 1, First: 7, Hashes: []uint64{1}}), func(b []byte) error { _, err := ParseOffer(b); return err }, 0},
	} {
		if err := c.parse(c.whole); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		before := len(AppendRun(nil, Start{Tail: 8, Devices: 3})) // of one that tells no frame
		for cut := range len(c.whole) - c.free {
			if err := c.parse(c.whole[:cut]); !errors.Is(err, ErrMalformed) && (name != "run" || cut != before) {
				t.Errorf("%s, %d of %d bytes: %v", name, cut, len(c.whole), err)
			}
		}
		if err := c.parse(append(bytes.Clone(c.whole), 0)); !errors.Is(err, ErrMalformed) && c.free == 0 {
			t.Errorf("%s, a byte more: %v", name, err)
		}
	}
}

// TestEnds: a clean end is one between two messages alone, and a message lies in the room that there is for it.
func TestEnds(t *testing.T) {
	if _, _, err := Read(strings.NewReader(""), nil); !errors.Is(err, io.EOF) {
		t.Errorf("between messages: %v", err)
	}
	for _, cut := range []string{"\x06\x00", "\x06\x00\x00\x00\x02", "\x06\x00\x00\x00\x02n"} {
		if _, _, err := Read(strings.NewReader(cut), nil); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("after %q: %v", cut, err)
		}
	}
	room := make([]byte, 8)
	if kind, got, err := Read(strings.NewReader("\x06\x00\x00\x00\x02no"), room); kind != KindBye || string(got) != "no" || err != nil || &got[0] != &room[0] {
		t.Errorf("%d %q %v", kind, got, err)
	}
	for kind, most := range map[Kind][]byte{
		KindFrame: AppendFrame(nil, 1, make([]byte, MaxPayload)), KindControl: AppendControl(nil, 1, TopicAbsent, make([]byte, MaxBody)),
		KindAck: AppendAck(nil, Ack{Ranges: make([]Range, MaxRanges+1)}), KindBye: AppendBye(nil, strings.Repeat("x", MaxText+1)),
	} {
		if got, _, err := Read(bytes.NewReader(most), nil); got != kind || err != nil {
			t.Errorf("the longest of kind %d: %d %v", kind, got, err)
		}
	}
}

// TestLyingRuns: runs of pages come back as they were, and are refused where they cannot be.
func TestLyingRuns(t *testing.T) {
	runs := []Run{{0, 3}, {3, 1}, {700, 2}}
	good := AppendDiscard(nil, runs)
	if got, err := ParseDiscard(good); err != nil || !slices.Equal(got, runs) {
		t.Errorf("%v %v", got, err)
	}
	for _, last := range []bool{false, true} {
		if got, l, err := ParseWanted(AppendWanted(nil, runs, last)); err != nil || l != last || !slices.Equal(got, runs) {
			t.Errorf("%v %v %v", got, l, err)
		}
	}
	most := make([]Run, MaxRuns+1)
	for i := range most {
		most[i] = Run{uint64(2 * i), 1} //nolint:gosec // not negative
	}
	if got, err := ParseDiscard(AppendDiscard(nil, most)); err != nil || !slices.Equal(got, most[:MaxRuns]) {
		t.Errorf("%d of %d runs, %v", len(got), MaxRuns, err)
	}
	if got, err := ParseAbsent(AppendAbsent(nil, most)); err != nil || !slices.Equal(got, most[:MaxRuns]) {
		t.Errorf("%d of %d runs, %v", len(got), MaxRuns, err)
	}
	many := append([]byte{byte((MaxRuns + 1) >> 8), byte((MaxRuns + 1) & 0xff)}, make([]byte, 16*(MaxRuns+1))...)
	for i := range MaxRuns + 1 {
		many[2+16*i+6], many[2+16*i+7], many[2+16*i+15] = byte(i>>8), byte(i), 1
	}
	for name, bad := range map[string][]byte{
		"nothing": nil, "cut": good[:len(good)-1], "longer": append(bytes.Clone(good), 0), "an empty run": AppendDiscard(nil, []Run{{3, 0}}),
		"before the one before it": AppendDiscard(nil, []Run{{3, 1}, {2, 1}}), "twice": AppendDiscard(nil, []Run{{3, 2}, {4, 1}}),
		"wraps": AppendDiscard(nil, []Run{{^uint64(0), 2}}), "more than are allowed": many,
	} {
		if _, err := ParseDiscard(bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("discard, %s: %v", name, err)
		}
		if _, _, err := ParseWanted(append([]byte{1}, bad...)); !errors.Is(err, ErrMalformed) {
			t.Errorf("wanted, %s: %v", name, err)
		}
	}
	for name, bad := range map[string][]byte{"nothing": nil, "another flag": append([]byte{2}, good...)} {
		if _, _, err := ParseWanted(bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("wanted, %s: %v", name, err)
		}
	}
}

// TestLyingCounts: lists whose length is not what they say of it are refused, and so is what is longer than it may be.
func TestLyingCounts(t *testing.T) {
	pages := make([]uint64, MaxPages+1)
	if frame, got, err := ParseMiss(AppendMiss(nil, 9, pages)); err != nil || frame != 9 || len(got) != MaxPages {
		t.Errorf("%d, %d pages, %v", frame, len(got), err)
	}
	if got, err := ParseFault(AppendFault(nil, pages)); err != nil || len(got) != MaxPages {
		t.Errorf("%d pages, %v", len(got), err)
	}
	two := AppendFault(nil, []uint64{5, 6})
	if got, err := ParseFault(two); err != nil || !slices.Equal(got, []uint64{5, 6}) {
		t.Errorf("%v, %v", got, err)
	}
	count := func(n int) []byte { return []byte{byte(n >> 8), byte(n)} }
	for name, bad := range map[string][]byte{
		"cut": two[:len(two)-1], "longer": append(bytes.Clone(two), 0), "fewer than there are": append(count(1), two[2:]...), "nothing": nil,
		"more than are allowed": append(count(MaxPages+1), make([]byte, 8*(MaxPages+1))...),
	} {
		if _, err := ParseFault(bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("fault, %s: %v", name, err)
		}
		if _, _, err := ParseMiss(append(make([]byte, 8), bad...)); !errors.Is(err, ErrMalformed) {
			t.Errorf("miss, %s: %v", name, err)
		}
	}
	ack := AppendAck(nil, Ack{Frames: 1, Ranges: []Range{{3, 4}, {7, 7}}})[HeaderSize:]
	if a, err := ParseAck(ack); err != nil || !reflect.DeepEqual(a.Ranges, []Range{{3, 4}, {7, 7}}) {
		t.Errorf("%+v, %v", a, err)
	}
	many := bytes.Clone(ack[:ackHead-2])
	many = append(many, count(MaxRanges+1)...)
	for i := range MaxRanges + 1 {
		many = append(many, make([]byte, 16)...)
		at := many[len(many)-16:]
		at[6], at[7], at[14], at[15] = byte((3*i+3)>>8), byte(3*i+3), byte((3*i+3)>>8), byte(3*i+3)
	}
	for name, bad := range map[string][]byte{"cut": ack[:len(ack)-1], "longer": append(bytes.Clone(ack), 0), "more than are allowed": many, "short": ack[:ackHead-1]} {
		if _, err := ParseAck(bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("ack, %s: %v", name, err)
		}
	}
}

// TestLyingTails: neither a tail nor the devices in it are longer than they may be.
func TestLyingTails(t *testing.T) {
	for tail, ok := range map[uint32]bool{0: true, MaxTail: true, MaxTail + 1: false, 1<<32 - 1: false} {
		if e, err := ParseEnd(AppendEnd(nil, End{9, tail})); (err == nil) != ok || ok && e != (End{9, tail}) {
			t.Errorf("end: %+v, %v", e, err)
		}
		if s, err := ParseRun(AppendRun(nil, Start{Tail: tail, Devices: min(tail, 1)})); (err == nil) != ok || ok && s.Tail != tail {
			t.Errorf("run: %+v, %v", s, err)
		}
	}
	for _, s := range []Start{{Tail: 9, Devices: 9}, {Tail: 9, Devices: 3, Last: 7}} {
		if got, err := ParseRun(AppendRun(nil, s)); err != nil || got != s {
			t.Errorf("%+v, %v, want %+v", got, err, s)
		}
	}
	with := AppendRun(nil, Start{Tail: 9, Devices: 3, Last: 7})
	clear(with[len(with)-8:])
	for name, bad := range map[string][]byte{"more devices than tail": AppendRun(nil, Start{Tail: 9, Devices: 10}), "last 0": with, "cut": with[:len(with)-1]} {
		if s, err := ParseRun(bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("run, %s: %+v, %v", name, s, err)
		}
	}
}
