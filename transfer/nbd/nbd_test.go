package nbd

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
)

var disk = Export{
	Size: 200 << 20, Flags: 0x1ed, Structured: true, Allocation: true, Context: 7, Blocks: [3]uint32{1, 4096, 32 << 20},
}

// meet has both sides speak to each other.
func meet(t *testing.T, name string, exports map[string]Export) (got Export, given string, asking, granting error) {
	t.Helper()
	here, there := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		given, granting = Grant(there, exports)
		there.Close()
	}()
	got, asking = Ask(here, name)
	here.Close()
	<-done
	return got, given, asking, granting
}

// TestAskAndGrant: what one side grants is what the other is told, but for the flush.
func TestAskAndGrant(t *testing.T) {
	bare := disk
	bare.Blocks = [3]uint32{}
	for _, offered := range []Export{disk, bare} {
		got, given, asking, granting := meet(t, "disk0", map[string]Export{"disk0": offered, "disk1": {}})
		want := offered
		want.Flags &^= flagSendFlush
		if asking != nil || granting != nil || given != "disk0" || got != want {
			t.Errorf("%+v of %q (%v, %v), want %+v", got, given, asking, granting, want)
		}
	}
}

// TestGrantRefuses: a client gets no disk that is not there, and none in another dialect
// than its server was asked for.
func TestGrantRefuses(t *testing.T) {
	chunkless := disk
	chunkless.Structured, chunkless.Allocation = false, false
	contextless := disk
	contextless.Allocation = false
	for name, c := range map[string]struct {
		ask  string
		has  Export
		want string
	}{
		"unknown":               {"disk9", disk, "no such disk"},
		"replies not in chunks": {"disk0", chunkless, "another dialect"},
	} {
		t.Run(name, func(t *testing.T) {
			_, given, asking, granting := meet(t, c.ask, map[string]Export{"disk0": c.has})
			if given != "" || granting == nil || asking == nil || !strings.Contains(asking.Error(), c.want) {
				t.Errorf("given %q: %v, %v, want %q", given, asking, granting, c.want)
			}
		})
	}
	if got, given, asking, _ := meet(t, "disk0", map[string]Export{"disk0": contextless}); asking != nil || given != "disk0" || got.Allocation {
		t.Errorf("without allocation: %+v, %v", got, asking)
	}
}

// saying is what the other side says, and what it is told goes nowhere.
type saying struct{ io.Reader }

func (saying) Write(b []byte) (int, error) { return len(b), nil }

var greeting = []byte("NBDMAGICIHAVEOPT\x00\x03")

func TestAskRefuses(t *testing.T) {
	ack := func(option uint32) []byte { return appendReply(nil, option, repAck, nil) }
	no := func(option uint32, why string) []byte { return appendReply(nil, option, errPolicy, []byte(why)) }
	said := func(parts ...[]byte) []byte { return bytes.Join(append([][]byte{greeting}, parts...), nil) }
	for name, c := range map[string]struct {
		said []byte
		want string
	}{
		"not NBD":     {[]byte("HTTP/1.1 200 OK\r\nServer: x"), "not an NBD server"},
		"old":         {[]byte("NBDMAGICIHAVEOPT\x00\x00"), "not an NBD server"},
		"not a reply": {said(make([]byte, 20)), "not a reply"},
		"another's":   {said(ack(optGo)), "a reply to NBD option 7, not to 8"},
		"too long":    {said(appendReply(nil, optStructured, repAck, make([]byte, longest+1))), "of 65537 bytes"},
		"cut":         {said(ack(optStructured)[:15]), "unexpected EOF"},
		"silent":      {nil, "unexpected EOF"},
		"no size":     {said(ack(optStructured), ack(optMetaContext), ack(optGo)), "does not say how large"},
		"refused":     {said(ack(optStructured), ack(optMetaContext), no(optGo, "it is\nin use")), `refused: "it is\nin use"`},
		"odd info":    {said(ack(optStructured), ack(optMetaContext), appendReply(nil, optGo, repInfo, []byte{0, 0, 1})), "NBD information 0 of 3 bytes"},
		"half info":   {said(ack(optStructured), ack(optMetaContext), appendReply(nil, optGo, repInfo, []byte{0})), "of 1 bytes"},
		"no info":     {said(ack(optStructured), ack(optMetaContext), appendReply(nil, optGo, repMetaContext, make([]byte, 12))), "of 12 bytes"},
		"odd blocks":  {said(ack(optStructured), ack(optMetaContext), appendReply(nil, optGo, repInfo, []byte{0, infoBlockSize, 1})), "NBD information 3 of 3 bytes"},
		"a context":   {said(ack(optStructured), appendReply(nil, optMetaContext, repMetaContext, []byte("\x00\x00\x00\x01qemu:dirty-bitmap:x"))), "not asked for"},
		"no context":  {said(ack(optStructured), appendReply(nil, optMetaContext, repInfo, []byte("\x00\x00\x00\x01base:allocation"))), "not asked for"},
		"half of one": {said(ack(optStructured), appendReply(nil, optMetaContext, repMetaContext, []byte{0, 0})), "not asked for"},
		"for ever":    {said(ack(optStructured), bytes.Repeat(appendReply(nil, optMetaContext, repMetaContext, []byte("\x00\x00\x00\x01base:allocation")), most)), "more than 64 replies"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Ask(saying{bytes.NewReader(c.said)}, "disk0"); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestAskOld: a server without chunks and contexts is spoken to without them.
func TestAskOld(t *testing.T) {
	said := bytes.Join([][]byte{
		greeting, appendReply(nil, optStructured, errUnsupported, nil),
		appendReply(nil, optGo, repInfo, []byte("\x00\x01name, 12 by.")), // of a kind that was not asked for
		appendReply(nil, optGo, repInfo, []byte{0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 5}), appendReply(nil, optGo, repAck, nil),
	}, nil)
	if e, err := Ask(saying{bytes.NewReader(said)}, "disk0"); err != nil || e != (Export{Size: 1 << 16, Flags: 5}) {
		t.Errorf("%+v, %v", e, err)
	}
}

// heard is saying, and keeps what it is told.
type heard struct {
	io.Reader
	bytes.Buffer
}

func (h *heard) Read(b []byte) (int, error) { return h.Reader.Read(b) }

// TestGrantKeepsToTheProtocol: a client gets a disk in the dialect of the server that was asked for it, and nothing for
// what is cut off, or no option.
func TestGrantKeepsToTheProtocol(t *testing.T) {
	bare := disk
	bare.Allocation = false
	start, structured := []byte{0, 0, 0, 3}, appendOption(nil, optStructured, nil)
	meta := func(name string, queries ...string) []byte {
		data := append(appendString(nil, name), 0, 0, 0, byte(len(queries)))
		for _, q := range queries {
			data = appendString(data, q)
		}
		return appendOption(nil, optMetaContext, data)
	}
	asks := func(option uint32, name string) []byte {
		return appendOption(nil, option, append(appendString(nil, name), 0, 0))
	}
	short := []byte{0, 0, 0, 9, 'd'}
	for name, c := range map[string]struct {
		said  [][]byte
		given string
		last  uint32 // kind of the last reply; 0: there is none
	}{
		"with its context":           {[][]byte{start, structured, meta("disk0", "other", allocation, allocation), asks(optGo, "disk0")}, "disk0", repAck},
		"without, where it has none": {[][]byte{start, structured, meta("bare", allocation), asks(optGo, "bare")}, "bare", repAck},
		"asked about first":          {[][]byte{start, structured, meta("disk0", allocation), asks(optInfo, "disk0"), asks(optGo, "disk0")}, "disk0", repAck},
		"asked about alone":          {[][]byte{start, structured, meta("disk0", allocation), asks(optInfo, "disk0")}, "", repAck},
		"without its context":        {[][]byte{start, structured, asks(optGo, "disk0")}, "", errPolicy},
		"with another's context":     {[][]byte{start, structured, meta("disk0", allocation), asks(optGo, "bare")}, "bare", repAck},
		"that it has given back":     {[][]byte{start, structured, meta("disk0", allocation), meta("disk0"), asks(optGo, "disk0")}, "", errPolicy},
		"without chunks":             {[][]byte{start, meta("disk0", allocation)}, "", errInvalid},
		"of no disk":                 {[][]byte{start, structured, meta("disk9", allocation)}, "", errUnknown},
		"half a name":                {[][]byte{start, structured, appendOption(nil, optGo, short)}, "", errInvalid},
		"less than half":             {[][]byte{start, structured, appendOption(nil, optGo, short[:3])}, "", errInvalid},
		"half a name of a context":   {[][]byte{start, structured, appendOption(nil, optMetaContext, short)}, "", errInvalid},
		"no number of queries":       {[][]byte{start, structured, appendOption(nil, optMetaContext, append(appendString(nil, "disk0"), 0, 0))}, "", errInvalid},
		"half a query":               {[][]byte{start, structured, appendOption(nil, optMetaContext, append(append(appendString(nil, "disk0"), 0, 0, 0, 1), short...))}, "", errInvalid},
		"more queries than it has":   {[][]byte{start, structured, appendOption(nil, optMetaContext, append(appendString(nil, "disk0"), 0xff, 0xff, 0xff, 0xff))}, "", errInvalid},
		"other flags":                {[][]byte{{0, 0, 0, 1}}, "", 0},
		"half its flags":             {[][]byte{{0, 0}}, "", 0},
		"no option":                  {[][]byte{start, make([]byte, 16)}, "", 0},
		"another option":             {[][]byte{start, appendOption(nil, 99, nil)}, "", errUnsupported},
		"on and on":                  {[][]byte{start, bytes.Repeat(structured, most+1)}, "", repAck},
	} {
		conn := &heard{Reader: bytes.NewReader(bytes.Join(c.said, nil))}
		given, err := Grant(conn, map[string]Export{"disk0": disk, "bare": bare})
		if given != c.given || (err == nil) != (c.given != "") || errors.Is(err, io.EOF) {
			t.Errorf("%s: given %q, %v", name, given, err)
		}
		last := uint32(0)
		for replies := bytes.NewReader(conn.Bytes()[len(greeting):]); replies.Len() > 0; {
			m, err := readReply(replies)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			last = m.kind
		}
		if last != c.last {
			t.Errorf("%s: the last reply is of kind %#x, want %#x", name, last, c.last)
		}
	}
}

func FuzzAsk(f *testing.F) {
	f.Add(append(bytes.Clone(greeting), appendReply(nil, optStructured, repAck, nil)...))
	f.Fuzz(func(t *testing.T, said []byte) {
		if e, err := Ask(saying{bytes.NewReader(said)}, "disk0"); err == nil && e.Allocation && !e.Structured {
			t.Errorf("%+v", e)
		}
	})
}

func FuzzGrant(f *testing.F) {
	go1 := appendOption(nil, optGo, append(appendString(nil, "disk0"), 0, 0))
	meta := appendOption(nil, optMetaContext, append(append(appendString(nil, "disk0"), 0, 0, 0, 1), appendString(nil, allocation)...))
	f.Add(bytes.Join([][]byte{{0, 0, 0, 3}, appendOption(nil, optStructured, nil), meta, go1}, nil))
	f.Add(bytes.Join([][]byte{{0, 0, 0, 3}, appendOption(nil, 99, []byte("x")), appendOption(nil, optAbort, nil)}, nil))
	f.Fuzz(func(t *testing.T, said []byte) {
		name, err := Grant(saying{bytes.NewReader(said)}, map[string]Export{"disk0": disk})
		if (err == nil) != (name == "disk0") {
			t.Errorf("%q, %v", name, err)
		}
		if errors.Is(err, io.EOF) {
			t.Error("a clean end in the middle")
		}
	})
}
