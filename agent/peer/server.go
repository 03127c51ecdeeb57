package peer

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	"godwit/internal/lasting"
	"godwit/migration"
)

// requestLimit bounds what is read of a request, bytes.
const requestLimit = 8 << 20

// Serve answers other agents on every uplink: it listens on each address until ctx ends, also where no device has it yet.
// handler gets the calls, streams
// the byte streams; both know the caller's host name, which a certificate proves.
// It returns once all listeners stand, or with the first error and none left.
func Serve(ctx context.Context, id *Identity, addrs []netip.AddrPort, handler http.Handler, streams func(*Stream), log *slog.Logger) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){
			StreamProtocol: func(_ *http.Server, conn *tls.Conn, _ http.Handler) {
				stream, err := acceptStream(conn)
				if err != nil {
					log.Warn("stream refused", "from", conn.RemoteAddr(), "error", err)
					return // the http server closes conn
				}
				streams(stream)
			},
		},
	}
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	options := socketOptions(streamSilence, 0)
	lc.Control = func(network, address string, c syscall.RawConn) error {
		return errors.Join(options(network, address, c), lasting.Early(network, address, c))
	}
	var listeners []net.Listener
	for _, a := range addrs {
		ln, err := lc.Listen(ctx, "tcp", a.String())
		if err != nil {
			for _, l := range listeners {
				l.Close()
			}
			return fmt.Errorf("listen for agents on %s: %w", a, err)
		}
		listeners = append(listeners, widen(ln))
	}
	for _, ln := range listeners {
		go answer(server, ln, id, log)
	}
	context.AfterFunc(ctx, func() { server.Close() })
	return nil
}

// answer serves at ln until that is closed.
func answer(server *http.Server, ln net.Listener, id *Identity, log *slog.Logger) {
	heard := lasting.Listener(ln, func(err error) {
		log.Error("no other host is heard at this address; it is tried on", "address", ln.Addr(), "error", err, "cure", lasting.Cure)
	})
	if err := server.Serve(tls.NewListener(heard, id.server())); !errors.Is(err, http.ErrServerClosed) {
		log.Error("peer listener ended", "error", err)
	}
}

// Caller is the host name of the agent that sent r.
func Caller(r *http.Request) string {
	if r.TLS == nil {
		return ""
	}
	return callerName(*r.TLS)
}

// Decode reads a bounded JSON request of another agent, whose version may know keys that this one does not.
func Decode(r *http.Request, into any) error { return decode(r, into, json.Unmarshal) }

// DecodeKnown reads one of a person or a program of theirs: a key that is unknown is an error, and not a wish that
// nobody heeds.
func DecodeKnown(r *http.Request, into any) error {
	return decode(r, into, func(data []byte, into any) error {
		d := json.NewDecoder(bytes.NewReader(data))
		d.DisallowUnknownFields()
		if err := d.Decode(into); err != nil {
			return err
		}
		if _, err := d.Token(); !errors.Is(err, io.EOF) {
			return errors.New("more than one value")
		}
		return nil
	})
}

func decode(r *http.Request, into any, unmarshal func([]byte, any) error) error {
	data, err := io.ReadAll(io.LimitReader(r.Body, requestLimit+1))
	if err != nil {
		return &migration.Problem{Code: migration.CodePeer, Text: "read request: " + err.Error()}
	}
	if len(data) > requestLimit {
		return &migration.Problem{Code: migration.CodePeer, Text: "read request: larger than 8 MiB"}
	}
	if len(data) == 0 {
		return nil
	}
	if err := unmarshal(data, into); err != nil {
		return &migration.Problem{Code: migration.CodeUsage, Text: "read request: " + err.Error()}
	}
	return nil
}

// Answer writes value, or err as a migration.Problem.
func Answer(w http.ResponseWriter, value any, err error) {
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		problem := AsProblem(err)
		w.WriteHeader(http.StatusConflict)
		value = problem
	}
	if value == nil {
		value = struct{}{}
	}
	if err := json.NewEncoder(w).Encode(value); err != nil {
		slog.Debug("answer not delivered", "error", err)
	}
}

// Answering is a handler that answers with what f returns.
func Answering(f func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		value, err := f(r)
		Answer(w, value, err)
	}
}

// AsProblem gives any error a code.
func AsProblem(err error) *migration.Problem {
	var problem *migration.Problem
	if errors.As(err, &problem) {
		return problem
	}
	var away *Unreachable
	if errors.As(err, &away) {
		return &migration.Problem{Code: migration.CodePeer, Text: err.Error()}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &migration.Problem{Code: migration.CodeTimeout, Text: err.Error()}
	}
	return &migration.Problem{Code: migration.CodeInternal, Text: err.Error()}
}
