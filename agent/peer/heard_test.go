package peer

import (
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
)

// exhausted is a listener of a host that has no memory left for a connection once, and is closed then.
type exhausted struct{ accepts int }

func (e *exhausted) Accept() (net.Conn, error) {
	if e.accepts++; e.accepts == 1 {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", syscall.ENOMEM)}
	}
	return nil, net.ErrClosed
}

func (*exhausted) Close() error   { return nil }
func (*exhausted) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: DefaultPort} }

// TestHeardAgain: other hosts are heard again after the host had no memory left for a connection, and what is wrong is
// said meanwhile.
func TestHeardAgain(t *testing.T) {
	var out strings.Builder
	ln := &exhausted{}
	server := &http.Server{} //nolint:gosec // of a test
	answer(server, ln, fleet(t, "paris")["paris"], slog.New(slog.NewTextHandler(&out, nil)))
	if ln.accepts != 2 {
		t.Errorf("tried %d times:\n%s", ln.accepts, out.String())
	}
	for _, want := range []string{"192.0.2.1:7440", "cannot allocate memory", "LimitNOFILE"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("not said: %q:\n%s", want, out.String())
		}
	}
}
