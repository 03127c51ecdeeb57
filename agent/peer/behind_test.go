package peer

import (
	"crypto/tls"
	"fmt"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// TestClockThatIsBehind: two hosts believe each other, though the clock of either shows another day than that on which
// their certificates were made, as that of one that boots in 1970.
func TestClockThatIsBehind(t *testing.T) {
	ids := fleet(t, "paris", "rome")
	for _, at := range []time.Time{time.Unix(60, 0), time.Now().Add(-7 * time.Hour), time.Now()} {
		if err := ids["rome"].Check(at); err != nil {
			t.Errorf("at %v: %v", at, err)
		}
		asks, answers := ids["paris"].client("rome", StreamProtocol), ids["rome"].server()
		answers, err := answers.GetConfigForClient(nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, behind := range []*tls.Config{asks, answers} {
			right := behind.Time
			behind.Time = func() time.Time { return at }
			here, there := net.Pipe()
			done := make(chan error, 1)
			go func() { done <- tls.Server(there, answers).HandshakeContext(t.Context()) }()
			err := tls.Client(here, asks).HandshakeContext(t.Context())
			here.Close() //nolint:errcheck // so that the other end ends
			if served := <-done; err != nil || served != nil {
				t.Errorf("one's clock at %v: %v, %v", at, err, served)
			}
			there.Close() //nolint:errcheck // it is over
			behind.Time = right
		}
	}
}

// TestUntimely: of a certificate that is not good yet, or any more, by this host's clock, it is said what that shows:
// it may be the clock that is wrong.
func TestUntimely(t *testing.T) {
	dir, now := t.TempDir(), time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	ca, err := NewFleetCA(dir, now)
	if err != nil {
		t.Fatal(err)
	}
	of := certificate("rome", now) // as another CA makes them
	of.NotBefore = now.Add(-time.Hour)
	if err := ca.issue("rome", of); err != nil {
		t.Fatal(err)
	}
	id, err := LoadIdentity(filepath.Join(dir, "ca.pem"), filepath.Join(dir, "rome.pem"), filepath.Join(dir, "rome.key"))
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range map[time.Time]string{
		now:                  "<nil>; " + Cure,
		time.Unix(60, 0):     "it is good from 2030-01-02 02:04:05 UTC on, and this host's clock shows 1970-01-01 00:01:00 UTC; set the clock right if it is not; else " + Cure,
		now.AddDate(1, 0, 1): "it expired at 2031-01-02 03:04:05 UTC by this host's clock, which shows 2031-01-03 03:04:05 UTC; set the clock right if it is not; else " + Cure,
	} {
		err := id.Check(at)
		if got := fmt.Sprintf("%v; %s", err, CureOf(err)); got != want {
			t.Errorf("at %v: %s, want %s", at, got, want)
		}
	}
}
