package uplinks

import (
	"errors"
	"maps"
	"net/netip"
	"testing"

	"godwit/agent/config"
	"godwit/agent/peer"
	"godwit/netstate/meter"
)

// TestUncountedPaths: of the paths by an uplink whose device is not named, or cannot be counted, it is said why nothing
// is known of them; by a device that there is not nothing leaves.
func TestUncountedPaths(t *testing.T) {
	before := openMeter
	openMeter = func(string) (*meter.Meter, error) { return nil, errors.New("no such program") }
	defer func() { openMeter = before }()
	at := netip.MustParseAddr
	meters := OpenMeters([]config.Uplink{
		{Name: "nameless", Address: at("127.0.0.1")}, {Name: "public", Address: at("127.0.0.2"), Device: "lo"},
		{Name: "gone", Address: at("127.0.0.3"), Device: "no-such-device"},
	}, func(string, ...any) {})
	defer meters.Close()
	paths := []peer.Path{
		{Name: "nameless-x", Local: at("127.0.0.1"), Remote: at("127.0.1.1")}, {Name: "public-x", Local: at("127.0.0.2"), Remote: at("127.0.1.1")},
		{Name: "gone-x", Local: at("127.0.0.3"), Remote: at("127.0.1.1")},
	}
	want := map[string]string{
		"nameless-x": "uplink nameless: the configuration names no device of it", "public-x": "uplink public: no such program",
	}
	if got := meters.Sent(paths, nil).uncounted; !maps.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestUncountedOnce: what was not counted for a while is not known later on.
func TestUncountedOnce(t *testing.T) {
	var wire Wire
	if len(wire.Uncounted()) > 0 {
		t.Error("before it counts")
	}
	wire.Begin(nil, &Sent{uncounted: map[string]string{"a": "first"}}, nil)
	for _, now := range []map[string]string{nil, {"b": "later"}, nil} {
		wire.Since(func() *Sent { return &Sent{uncounted: now} })
	}
	if got, want := wire.Uncounted(), map[string]string{"a": "first", "b": "later"}; !maps.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
