package serve

import (
	"encoding/binary"
	"encoding/json"
	"net/netip"
	"testing"

	"godwit/lab/traffic/record"
)

func datagram(kind record.Kind, seed uint32, number uint64, size int) []byte {
	body := binary.BigEndian.AppendUint32(nil, seed)
	return record.Append(nil, kind, number, append(body, record.Payload(seed, number, size)...))
}

func stats(t *testing.T, s answerer, seed uint32) record.UDPStats {
	t.Helper()
	out := s.answer(netip.AddrPort{}, datagram(record.Stats, seed, 9, 0))
	h, ok := record.Parse(out)
	if !ok || h.Kind != record.Stats || h.Number != 9 {
		t.Fatalf("answer %x", out)
	}
	var u record.UDPStats
	if err := json.Unmarshal(out[record.HeaderSize+4:], &u); err != nil {
		t.Fatal(err)
	}
	return u
}

func TestCounts(t *testing.T) {
	tests := []struct {
		name    string
		numbers []uint64
		want    record.UDPStats
	}{
		{"in order", []uint64{0, 1, 2, 3}, record.UDPStats{Received: 4, Next: 4}},
		{"a hole", []uint64{0, 1, 5}, record.UDPStats{Received: 3, Next: 6}},
		{"late", []uint64{0, 2, 1, 3}, record.UDPStats{Received: 4, Late: 1, Next: 4}},
		{"repeated", []uint64{0, 1, 1, 0, 2}, record.UDPStats{Received: 3, Repeated: 2, Next: 3}},
		{"late twice", []uint64{0, 5, 2, 2}, record.UDPStats{Received: 3, Repeated: 1, Late: 1, Next: 6}},
		{"far ahead", []uint64{0, 3, 5 * memory, 5*memory - memory + 3}, record.UDPStats{Received: 4, Late: 1, Next: 5*memory + 1}},
		{"far behind, and then the newer one whose place that was", []uint64{0, 2*memory + 5, memory + 3, 2*memory + 3, 2*memory + 3}, record.UDPStats{Received: 4, Repeated: 1, Late: 2, Next: 2*memory + 6}},
		{"ring reused", []uint64{1, memory, memory + 1, memory + 1}, record.UDPStats{Received: 3, Repeated: 1, Next: memory + 2}},
	}
	for _, test := range tests {
		s := newCounts()
		for _, n := range test.numbers {
			if out := s.answer(netip.AddrPort{}, datagram(record.Data, 7, n, 100)); out != nil {
				t.Errorf("%s: answered a record", test.name)
			}
		}
		got := stats(t, s, 7)
		if got.Counter == 0 || stats(t, s, 7).Counter != got.Counter {
			t.Errorf("%s: counter %d, and then %d", test.name, got.Counter, stats(t, s, 7).Counter)
		}
		got.LongestGap, got.Counter = 0, 0
		test.want.Bytes = 100 * test.want.Received
		if got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
}

func TestCountsOfCorruptStrangeAndManyFlows(t *testing.T) {
	s := newCounts()
	bad := datagram(record.Data, 7, 0, 100)
	bad[50] ^= 1
	s.answer(netip.AddrPort{}, bad)
	if got := stats(t, s, 7); got.Corrupt != 1 || got.Received != 0 {
		t.Errorf("%+v", got)
	}
	for _, strange := range [][]byte{nil, {0x67}, record.Append(nil, record.Data, 1, []byte("abc")), bad[:60]} {
		if s.answer(netip.AddrPort{}, strange) != nil {
			t.Errorf("answered %x", strange)
		}
	}
	for seed := range uint32(2 * mostFlows) {
		s.answer(netip.AddrPort{}, datagram(record.Data, 1000+seed, 0, 10))
	}
	if n := len(s.(*counts).flows); n > mostFlows {
		t.Errorf("%d flows are counted", n)
	}
	if got := stats(t, s, 1000+2*mostFlows-1); got.Received != 1 {
		t.Errorf("the newest flow: %+v", got)
	}
}
