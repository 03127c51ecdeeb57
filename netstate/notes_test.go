package netstate

import (
	"slices"
	"strings"
	"testing"
)

// FuzzNotes: whatever the kernel's notes say, what of them a host may have is written down again as it was read.
func FuzzNotes(f *testing.F) {
	f.Add("guest bridge=br-guest lan=lan0 taps=t1a,t1b mac=52:54:00:00:00:01 unfinished=yes\n" +
		"away addr=10.1.1.5 mac=52:54:00:00:01:0a tap=t1a tunnel=gw1 gateway=10.1.1.1 subnet=10.1.1.0/24 fits=1400\n" +
		"visiting addr=fd00::5 mac=52:54:00:00:01:0a tap=t1a taps=t1a,t1b gateway=fe80::1 tunnel=gw1 asks=own known=52:54:00:00:01:0b publish=7 direct=yes\n" +
		"offlink tap=t1a routers=fe80::1,fe80::2\nactive addr=10.1.1.5")
	f.Add("guest bridge=br0 taps=a,,b\nvisiting addr=10.1.1.5 mac=52-54-00-00-01-0a taps=t known=0000.0000.0000.0001 tunnel=x publish=007")
	f.Fuzz(func(t *testing.T, text string) {
		s, mac, err := readNotes("web", strings.Split(text, "\n"))
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%q", err)
			}
			return
		}
		if s.validate() != nil {
			return
		}
		written := notes(s, mac)
		again, mac2, err := readNotes("web", written)
		if err != nil || again.validate() != nil || !slices.Equal(notes(again, mac2), written) {
			t.Errorf("%q:\nread %+v\nthen %+v, %v", text, s, again, err)
		}
	})
}

// TestNotesOfANewerRelease: a kind that is not known here is passed over, where a release that knows it was rolled
// back; what is known, and wrong, is still an error.
func TestNotesOfANewerRelease(t *testing.T) {
	known := []string{
		"guest bridge=br-guest lan=lan0 taps=t1a mac=52:54:00:00:00:01",
		"away addr=10.1.1.5 mac=52:54:00:00:01:0a tap=t1a tunnel=gw1 gateway=10.1.1.1",
		"active addr=10.1.1.5",
	}
	for at := range len(known) + 1 {
		s, mac, err := readNotes("web", slices.Insert(slices.Clone(known), at, "shaded tap=t1a by=fe80::1"))
		if err != nil || !slices.Equal(notes(s, mac), known) {
			t.Errorf("at %d: %v: %q", at, err, notes(s, mac))
		}
	}
	for _, wrong := range []string{"away mac=52:54:00:00:01:0a", "visiting addr=10.1.1.5", "active", "active addr=ten"} {
		if _, _, err := readNotes("web", append(slices.Clone(known), wrong)); err == nil {
			t.Errorf("%q: no error", wrong)
		}
	}
}
