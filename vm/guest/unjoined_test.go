package guest

import (
	"strings"
	"testing"
	"time"
)

// TestWhyUnjoined: the reason names what its reader has to set, and nothing of it is cut off on its way to the host.
func TestWhyUnjoined(t *testing.T) {
	for _, why := range []string{WhyUnjoined(time.Hour + 59*time.Minute + 59*time.Second + 999*time.Millisecond), WhyUnjoinedAgain, WhyDialled} {
		if shown(why) != why || !strings.Contains(why, "add_addr_accepted") {
			t.Errorf("%d bytes, shown as %q", len(why), shown(why))
		}
	}
}
