package agent

import (
	"errors"
	"testing"

	"godwit/vm/qemu"
)

// TestSameCards: a guest is gone for sure only where another one is seen on its socket.
func TestSameCards(t *testing.T) {
	const a, b = "52:54:00:00:01:0a", "52:54:00:00:01:0b"
	d := Description{QMP: "/run/web.sock", NICs: []NIC{{MAC: a}, {MAC: b}}}
	for name, c := range map[string]struct {
		cards []qemu.Card
		same  bool
		gone  bool
	}{
		"both":                       {[]qemu.Card{{MAC: b}, {MAC: a}}, true, false},
		"in capitals":                {[]qemu.Card{{MAC: "52:54:00:00:01:0A"}}, true, false},
		"its owner took one away":    {[]qemu.Card{{MAC: b}}, true, false},
		"its owner took all of them": {nil, false, false},
		"another guest":              {[]qemu.Card{{MAC: "52:54:00:00:02:0a"}}, false, true},
	} {
		if err := sameCards(d, c.cards); (err == nil) != c.same || goneForSure(err) != c.gone || errors.Is(err, qemu.ErrGone) != c.gone {
			t.Errorf("%s: %v", name, err)
		}
	}
}
