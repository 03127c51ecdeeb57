package peer

import (
	"crypto/tls"
	"net"
	"testing"
	"time"
)

// TestClockThatIsBehind: two hosts believe each other, though the clock of either shows another day than that on which their certificates
// were made, as that of one that boots in 1970.
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
