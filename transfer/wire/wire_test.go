package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestGolden keeps the bytes of each version.
func TestGolden(t *testing.T) {
	for _, c := range []struct {
		name string
		got  []byte
		want string
	}{
		{"hello", AppendHello(nil, Hello{1, 1, "m-1", Key{0xaa}, "a-b"}),
			"\x01\x00\x00\x00\x32GODWITLN\x01\x01\x03m-1\xaa" + strings.Repeat("\x00", 31) + "\x03a-b"},
		{"welcome", AppendWelcome(nil, 1), "\x02\x00\x00\x00\x01\x01"},
		{"frame", AppendFrame(nil, 7, []byte("xy")), "\x03\x00\x00\x00\x0a\x00\x00\x00\x00\x00\x00\x00\x07xy"},
		{"control", AppendControl(nil, 2, TopicEnd, AppendEnd(nil, End{9, 3})),
			"\x04\x00\x00\x00\x15\x00\x00\x00\x00\x00\x00\x00\x02\x04\x00\x00\x00\x00\x00\x00\x00\x09\x00\x00\x00\x03"},
		{"offer", AppendControl(nil, 3, TopicOffer, AppendOffer(nil, Offer{Set: 1, First: 5, Hashes: []uint64{0xab, 0}})),
			"\x04\x00\x00\x00\x27\x00\x00\x00\x00\x00\x00\x00\x03\x0f\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x05\x00\x02" +
				"\x00\x00\x00\x00\x00\x00\x00\xab" + strings.Repeat("\x00", 8)},
		{"absent", AppendControl(nil, 4, TopicAbsent, AppendAbsent(nil, []Run{{5, 1}, {300, 2}})),
			"\x04\x00\x00\x00\x0f\x00\x00\x00\x00\x00\x00\x00\x04\x12\x02\x05\x01\xa6\x02\x02"},
		{"ack", AppendAck(nil, Ack{Frames: 1, Ranges: []Range{{3, 4}}}),
			"\x05\x00\x00\x00\x42\x00\x00\x00\x00\x00\x00\x00\x01" + strings.Repeat("\x00", 40) + "\x00\x01\x00\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00\x04"},
		{"bye", AppendBye(nil, "no"), "\x06\x00\x00\x00\x02no"},
	} {
		if string(c.got) != c.want {
			t.Errorf("%s:\n%q\n%q", c.name, c.got, c.want)
		}
	}
}

// TestGoldenControls keeps the numbers of topics, and the bytes of what is said of them.
func TestGoldenControls(t *testing.T) {
	for _, c := range []struct {
		topic Topic
		body  []byte
		want  string
	}{
		{TopicCommand, AppendCommand(nil, 11, []byte("x")), "02 000b 78"},
		{TopicOpaque, AppendOpaque(nil, Opaque{true, 7, "why"}), "05 01 0000000000000007 776879"},
		{TopicOpaque, AppendOpaque(nil, Opaque{}), "05 00 0000000000000000"},
		{TopicMiss, AppendMiss(nil, 7, []uint64{4, 5}), "0a 0000000000000007 0002 0000000000000004 0000000000000005"},
		{TopicFault, AppendFault(nil, []uint64{4}), "0b 0001 0000000000000004"},
		{TopicDiscard, AppendDiscard(nil, []Run{{3, 2}}), "0c 0001 0000000000000003 0000000000000002"},
		{TopicRun, AppendRun(nil, Start{Tail: 8, Devices: 3}), "0d 00000008 00000003"},
		{TopicRun, AppendRun(nil, Start{Tail: 8, Devices: 3, Last: 9}), "0d 00000008 00000003 0000000000000009"},
		{TopicWanted, AppendWanted(nil, []Run{{3, 2}}, true), "0e 01 0001 0000000000000003 0000000000000002"},
		{TopicWanted, AppendWanted(nil, nil, false), "0e 00 0000"},
		{TopicPrologue, nil, "01"}, {TopicTail, nil, "03"}, {TopicRaw, nil, "06"}, {TopicRawEnd, nil, "07"},
		{TopicReturn, nil, "08"}, {TopicReturnEnd, nil, "09"}, {TopicBytes, nil, "10"}, {TopicBytesEnd, nil, "11"},
	} {
		if got := fmt.Sprintf("%02x%x", uint8(c.topic), c.body); got != strings.ReplaceAll(c.want, " ", "") {
			t.Errorf("%s, not %s", got, c.want)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := Hello{
			Lowest: 1, Highest: rapid.Uint8Range(1, 255).Draw(t, "highest"),
			Migration: rapid.StringMatching(`[a-z0-9-]{1,64}`).Draw(t, "migration"), Path: rapid.StringMatching(`[a-z-]{0,64}`).Draw(t, "path"),
		}
		copy(h.Key[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "key"))
		if got, err := ParseHello(body(t, AppendHello(nil, h), KindHello)); err != nil || got != h {
			t.Fatalf("%+v %v", got, err)
		}
		a := Ack{Frames: rapid.Uint64Range(0, 1<<40).Draw(t, "frames"), Controls: 3, Read: 4, Stamp: 5, Echo: 6, Held: 7}
		at := a.Frames
		for range rapid.IntRange(0, MaxRanges).Draw(t, "ranges") {
			first := at + 2 + rapid.Uint64Range(0, 9).Draw(t, "gap")
			at = first + rapid.Uint64Range(0, 9).Draw(t, "length")
			a.Ranges = append(a.Ranges, Range{first, at})
		}
		if got, err := ParseAck(body(t, AppendAck(nil, a), KindAck)); err != nil || !reflect.DeepEqual(got, a) {
			t.Fatalf("%+v %v", got, err)
		}
		var runs []Run
		at = 0
		for range rapid.IntRange(0, 50).Draw(t, "runs") {
			run := Run{at + rapid.Uint64Range(0, 1<<33).Draw(t, "between"), rapid.Uint64Range(1, 1<<33).Draw(t, "count")}
			runs, at = append(runs, run), run.First+run.Count
		}
		if got, err := ParseAbsent(AppendAbsent(nil, runs)); err != nil || !slices.Equal(got, runs) {
			t.Fatalf("%v %v", got, err)
		}
		pages := rapid.SliceOfN(rapid.Uint64(), 0, 50).Draw(t, "pages")
		frame, got, err := ParseMiss(AppendMiss(nil, 9, pages))
		if err != nil || frame != 9 || len(got) != len(pages) || len(pages) > 0 && !reflect.DeepEqual(got, pages) {
			t.Fatalf("%d %v %v", frame, got, err)
		}
	})
}

func body(t *rapid.T, message []byte, kind Kind) []byte {
	got, body, err := Read(bytes.NewReader(message), nil)
	if err != nil || got != kind {
		t.Fatalf("kind %d, %v", got, err)
	}
	return body
}

func TestOpaque(t *testing.T) {
	want := Opaque{true, 7, `section "dirty-bitmap"`}
	if got, err := ParseOpaque(AppendOpaque(nil, want)); err != nil || got != want {
		t.Errorf("%+v %v", got, err)
	}
	if code, data, err := ParseCommand(AppendCommand(nil, 11, []byte("x"))); code != 11 || string(data) != "x" || err != nil {
		t.Errorf("%d %q %v", code, data, err)
	}
	for name, bad := range map[string][]byte{"short": {1, 0}, "long reason": append(make([]byte, 9), make([]byte, MaxText+1)...)} {
		if _, err := ParseOpaque(bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBadMessagesAreRefused(t *testing.T) {
	for name, bad := range map[string]string{
		"unknown kind":   "\x09\x00\x00\x00\x00",
		"kind 0":         "\x00\x00\x00\x00\x00",
		"too long frame": "\x03\xff\xff\xff\xff",
		"too long bye":   "\x06\x00\x00\x02\x01",
	} {
		if _, _, err := Read(strings.NewReader(bad), nil); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := Read(strings.NewReader("\x06\x00\x00\x00\x02n"), nil); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("truncated: %v", err)
	}
	for name, a := range map[string]Ack{
		"touching":    {Frames: 3, Ranges: []Range{{4, 5}}},
		"overlapping": {Frames: 3, Ranges: []Range{{6, 9}, {8, 10}}},
		"backwards":   {Frames: 3, Ranges: []Range{{9, 6}}},
		"before":      {Frames: 30, Ranges: []Range{{9, 16}}},
		"wraps":       {Frames: ^uint64(0), Ranges: []Range{{1, 2}}},
	} {
		if _, err := ParseAck(AppendAck(nil, a)[HeaderSize:]); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestHelloAnswer(t *testing.T) {
	h := Hello{Lowest: 1, Highest: Version + 1, Migration: "m-1", Key: Key{1}}
	if v, err := h.Answer("m-1", Key{1}); v != Version || err != nil {
		t.Errorf("%d %v", v, err)
	}
	if _, err := h.Answer("m-1", Key{2}); err == nil {
		t.Error("a wrong key was taken")
	}
	if _, err := h.Answer("m-2", Key{1}); err == nil {
		t.Error("another migration's lane was taken")
	}
	h.Highest = 1
	if v, err := h.Answer("m-1", Key{1}); v != 1 || err != nil {
		t.Errorf("one that speaks version 1 only: %d %v", v, err)
	}
	h.Highest = 2
	if v, err := h.Answer("m-1", Key{1}); v != 2 || err != nil {
		t.Errorf("one that does not speak version 3: %d %v", v, err)
	}
	h.Lowest, h.Highest = Version+1, Version+2
	if _, err := h.Answer("m-1", Key{1}); err == nil || !strings.Contains(err.Error(), "versions 7 to 8") {
		t.Errorf("a version too new: %v", err)
	}
}

func TestLyingOffers(t *testing.T) {
	good := AppendOffer(nil, Offer{Set: 1, First: 7, Hashes: []uint64{1, 2}})
	if o, err := ParseOffer(good); err != nil || o.First != 7 || len(o.Hashes) != 2 {
		t.Errorf("%+v %v", o, err)
	}
	wraps := AppendOffer(nil, Offer{First: ^uint64(0), Hashes: []uint64{1, 2}})
	for name, bad := range map[string][]byte{
		"short": good[:9], "cut": good[:len(good)-1], "longer": append(bytes.Clone(good), 0), "wraps": wraps,
		"more than are allowed": append(append(make([]byte, 12), 0x10, 0x01), make([]byte, 8*(MaxOffer+1))...),
	} {
		if _, err := ParseOffer(bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLyingAbsent(t *testing.T) {
	good := AppendAbsent(nil, []Run{{3, 1}, {700, 2}})
	if runs, err := ParseAbsent(good); err != nil || !slices.Equal(runs, []Run{{3, 1}, {700, 2}}) {
		t.Errorf("%v %v", runs, err)
	}
	for name, bad := range map[string][]byte{
		"nothing": nil, "cut": good[:len(good)-1], "longer": append(bytes.Clone(good), 0), "an empty run": {1, 3, 0},
		"before the one before it": AppendAbsent(nil, []Run{{3, 1}, {2, 1}}), "wraps": AppendAbsent(nil, []Run{{^uint64(0), 2}}),
		"more than are there": {200, 1, 1, 1}, "more than are allowed": append([]byte{0x81, 0x40}, bytes.Repeat([]byte{1}, 2*(MaxRuns+1))...),
		"a number without end": append([]byte{1}, bytes.Repeat([]byte{0xff}, 20)...),
	} {
		if _, err := ParseAbsent(bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(AppendControl(nil, 1, TopicOpaque, AppendOpaque(nil, Opaque{true, 3, "why"})))
	f.Add(AppendHello(nil, Hello{1, 1, "m-1", Key{}, "p"}))
	f.Add(AppendAck(AppendFrame(nil, 1, []byte("pages")), Ack{Frames: 1, Ranges: []Range{{3, 3}}}))
	f.Add(AppendControl(nil, 3, TopicDiscard, AppendDiscard(nil, []Run{{1, 2}, {5, 1}})))
	f.Add(AppendControl(nil, 3, TopicAbsent, AppendAbsent(nil, []Run{{1, 2}, {5, 1}})))
	f.Add(AppendControl(nil, 4, TopicWanted, AppendWanted(nil, []Run{{1, 2}, {5, 1}}, true)))
	f.Add(AppendControl(nil, 4, TopicOffer, AppendOffer(nil, Offer{1, 2, []uint64{3, 4}})))
	f.Add(AppendControl(nil, 2, TopicMiss, AppendMiss(nil, 1, []uint64{1, 2})))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bytes.NewReader(data)
		for {
			kind, body, err := Read(r, nil)
			if err != nil {
				return
			}
			switch kind {
			case KindHello:
				if h, err := ParseHello(body); err == nil && !bytes.Equal(AppendHello(nil, h)[HeaderSize:], body) {
					t.Fatal("hello does not come back")
				}
			case KindAck:
				if a, err := ParseAck(body); err == nil && !bytes.Equal(AppendAck(nil, a)[HeaderSize:], body) {
					t.Fatal("ack does not come back")
				}
			case KindFrame:
				ParseFrame(body)
			case KindWelcome:
				ParseWelcome(body)
			case KindControl:
				fuzzControl(t, body)
			}
		}
	})
}

func fuzzControl(t *testing.T, body []byte) {
	_, topic, rest, err := ParseControl(body)
	if err != nil {
		return
	}
	switch topic {
	case TopicOpaque:
		ParseOpaque(rest)
	case TopicCommand:
		if code, data, err := ParseCommand(rest); err == nil && !bytes.Equal(AppendCommand(nil, code, data), rest) {
			t.Fatal("command does not come back")
		}
	case TopicEnd:
		ParseEnd(rest)
	case TopicMiss:
		if f, pages, err := ParseMiss(rest); err == nil && !bytes.Equal(AppendMiss(nil, f, pages), rest) {
			t.Fatal("miss does not come back")
		}
	case TopicWanted:
		if runs, last, err := ParseWanted(rest); err == nil && !bytes.Equal(AppendWanted(nil, runs, last), rest) {
			t.Error("wanted does not round-trip")
		}
	case TopicDiscard:
		if runs, err := ParseDiscard(rest); err == nil && !bytes.Equal(AppendDiscard(nil, runs), rest) {
			t.Fatal("discard does not come back")
		}
	case TopicAbsent:
		if runs, err := ParseAbsent(rest); err == nil {
			if again, err := ParseAbsent(AppendAbsent(nil, runs)); err != nil || !slices.Equal(again, runs) {
				t.Fatal("absent does not come back")
			}
		}
	case TopicRun:
		if s, err := ParseRun(rest); err == nil && !bytes.Equal(AppendRun(nil, s), rest) {
			t.Fatal("run does not come back")
		}
	case TopicFault:
		ParseFault(rest)
	case TopicOffer:
		if o, err := ParseOffer(rest); err == nil && !bytes.Equal(AppendOffer(nil, o), rest) {
			t.Fatal("offer does not come back")
		}
	}
}
