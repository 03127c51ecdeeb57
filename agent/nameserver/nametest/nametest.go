// Package nametest is, for tests, a name server that takes updates, or refuses them.
package nametest

import (
	"encoding/base64"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"godwit/agent/nameserver"
)

// Server refuses the first updates and takes those after, until the test ends, or it was asked what it has taken.
func Server(t *testing.T, refuse int) (c nameserver.Config, taken func() []string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	secret := base64.StdEncoding.EncodeToString([]byte("secret"))
	server := &dns.Server{Listener: listener, TsigSecret: map[string]string{"k.": secret},
		MsgAcceptFunc: func(dns.Header) dns.MsgAcceptAction { return dns.MsgAccept }}
	server.Handler = dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg)
		m.SetReply(q)
		if w.TsigStatus() != nil || refuse > 0 {
			refuse--
			m.SetRcode(q, dns.RcodeRefused)
		} else {
			for _, rr := range q.Ns {
				if rr.Header().Class == dns.ClassINET {
					got = append(got, strings.Join(strings.Fields(rr.String()), " "))
				}
			}
		}
		m.SetTsig("k.", dns.HmacSHA256, 300, time.Now().Unix())
		w.WriteMsg(m) //nolint:errcheck // the client says
	})
	ended := make(chan struct{})
	go func() { server.ActivateAndServe(); close(ended) }()         //nolint:errcheck // it ends with the test
	stop := func() { server.Shutdown(); listener.Close(); <-ended } //nolint:errcheck // it ends with the test
	t.Cleanup(func() {
		if listener != nil {
			stop()
		}
	})
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	c = nameserver.Config{Server: listener.Addr().String(), Zone: "example.test", Key: nameserver.Key{Name: "k", File: file}}
	return c, func() []string { stop(); listener = nil; return got }
}
