package peer

import (
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// TestOldTLS: neither end of a link speaks TLS 1.2, whoever is at the other.
func TestOldTLS(t *testing.T) {
	ids := fleet(t, "paris", "rome")
	port := freePort(t)
	serve(t, ids["rome"], port, echo(), nil)
	for version, ok := range map[uint16]bool{tls.VersionTLS12: false, tls.VersionTLS13: true} {
		said := func(end string, err error) {
			t.Helper()
			if (err == nil) != ok || !ok && !strings.Contains(err.Error(), "protocol version not supported") {
				t.Errorf("%s, to one that speaks no more than %s: %v", end, tls.VersionName(version), err)
			}
		}
		caller := ids["paris"].client("rome", "http/1.1")
		caller.MinVersion, caller.MaxVersion = tls.VersionTLS12, version
		conn, err := tls.Dial("tcp", fmt.Sprintf("%v:%d", loopback, port), caller)
		if err == nil {
			conn.Close()
		}
		said("the server", err)

		answers, err := ids["rome"].server().GetConfigForClient(nil)
		if err != nil {
			t.Fatal(err)
		}
		answers.MinVersion, answers.MaxVersion = tls.VersionTLS12, version
		ln, err := tls.Listen("tcp", net.JoinHostPort(loopback.String(), "0"), answers)
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		go func() {
			if conn, err := ln.Accept(); err == nil {
				conn.(*tls.Conn).Handshake() //nolint:errcheck // the other end tells
				conn.Close()
			}
		}()
		link := linkTo(t, ids["paris"], "rome", uint16(ln.Addr().(*net.TCPAddr).Port)) //nolint:gosec // a port
		said("the caller", link.Reaches(within(t, 10*time.Second), Path{Name: "lo-lo", Local: loopback, Remote: loopback}))
	}
}
