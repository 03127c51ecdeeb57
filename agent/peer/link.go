package peer

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"godwit/internal/oneline"
	"godwit/migration"
)

// Path is a pair of uplinks, one on each host.
type Path struct {
	Name   string     `json:"name"` // LOCAL-REMOTE by their uplinks' names
	Local  netip.Addr `json:"local"`
	Remote netip.Addr `json:"remote"`
	Rate   int64      `json:"rate"`   // bit/s of the slower uplink as configured; 0: unknown
	Guest  bool       `json:"guest"`  // both uplinks carry guests' traffic
	Memory bool       `json:"memory"` // both uplinks carry migrations

	Shared     bool  `json:"-"` // one of the uplinks, or both, carries guests' traffic
	LocalRate  int64 `json:"-"` // of the uplink here, as Rate
	RemoteRate int64 `json:"-"`
}

const (
	dialStagger = 250 * time.Millisecond // between tries of paths
	// dialAgain is between tries of one path that say nothing: sooner than TCP itself asks
	// again, so that a path that works again is found at once.
	dialAgain = 100 * time.Millisecond
	// controlSilence ends a control connection whose path has died: what is sent is not
	// acknowledged (TCP_USER_TIMEOUT, RFC 5482), or, while an answer is waited for, probes are
	// not, each controlProbe. The call is repeated on a new one: an old one would wait for
	// TCP to ask again, which after a long cut may take as long as the cut.
	controlSilence = 3 * time.Second
	controlProbe   = time.Second
	// streamSilence lets a stream outlive a cut of a minute.
	streamSilence = 90 * time.Second
	// retryMost is TCP's longest pause between tries to get a segment through.
	retryMost = 2 * time.Second
	// leastRetry is how much longer than the round trip a call waits at least before TCP sends again what it has heard
	// nothing of: more than the 40 ms by which the other end may delay its word. A call is a packet with none behind it
	// that could tell of its loss, the kernel's own least is 200 ms, and the guest stands still while it is released.
	leastRetry = 50 * time.Millisecond
	// answerLimit bounds what is read of an answer, bytes.
	answerLimit = 8 << 20
)

// Limits of the two parts of a new connection. A handshake has one of its own: whoever was
// answered at last is not cut off in the middle of it, to begin anew.
var (
	dialLimit  = 4 * time.Second // until the other end answers
	shakeLimit = 4 * time.Second // of TLS
)

// Link calls one other agent over whichever path answers.
type Link struct {
	host  string
	port  uint16
	paths []Path // best first
	id    *Identity
	http  *http.Client
	life  context.Context // of what is dialled for calls
	end   context.CancelFunc

	mu   sync.Mutex
	left *dialling // what a call began to dial and did not wait for
	last net.Conn  // that was dialled for a call
}

// NewLink prepares a link to host; nothing is dialled yet.
func NewLink(id *Identity, host string, port uint16, paths []Path) *Link {
	l := &Link{host: host, port: port, paths: paths, id: id}
	l.life, l.end = context.WithCancel(context.Background())
	l.http = &http.Client{Transport: &http.Transport{
		DialTLSContext:      func(ctx context.Context, _, _ string) (net.Conn, error) { return l.dialCall(ctx) },
		MaxIdleConnsPerHost: 4,
		IdleConnTimeout:     time.Minute,
	}}
	return l
}

// Paths are the pairs of uplinks, best first.
func (l *Link) Paths() []Path { return l.paths }

// Close drops idle connections, and ends what is dialled for calls; there can be none after it.
func (l *Link) Close() {
	l.end() // of what is dialled too
	l.http.CloseIdleConnections()
}

// Unreachable is the error of a call that no path carried.
type Unreachable struct {
	Host  string
	Cause error
}

func (u *Unreachable) Error() string {
	return fmt.Sprintf("call agent %s: no answer over any path: %v; %s", u.Host, u.Cause, u.ask())
}

// Disbelieved says that somebody is there, and that one of the two ends does not believe the other's certificate.
func (u *Unreachable) Disbelieved() bool {
	var told *net.OpError
	return disbelieves(u.Cause) || errors.As(u.Cause, &told) && told.Op == "remote error" // as crypto/tls marks alerts
}

// ask is what a person should look at, by how the last try ended.
func (u *Unreachable) ask() string {
	switch {
	case u.Disbelieved():
		return "are both hosts' certificates of this fleet, not over, and their clocks right? `godwit doctor` on each says it"
	case errors.As(u.Cause, new(pathless)):
		return "name its uplinks in this agent's configuration"
	case errors.Is(u.Cause, syscall.ECONNREFUSED):
		return "is it running there?"
	default:
		return "is it running, and do the uplinks carry packets both ways?"
	}
}

func (u *Unreachable) Unwrap() error { return u.Cause }

// Call sends one request, and repeats it over other paths until it is answered or
// ctx ends. The other side treats repeats as one. A *migration.Problem is the
// other agent's own word; *Unreachable means that nobody answered.
func (l *Link) Call(ctx context.Context, method, path string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("call agent %s: %w", l.host, err)
	}
	if len(l.paths) == 0 {
		return &Unreachable{l.host, pathless(l.host)} // trying does not change a configuration
	}
	var last error
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		began := time.Now()
		err := l.once(ctx, method, path, body, answer)
		var problem *migration.Problem
		if err == nil || errors.As(err, &problem) {
			return err
		}
		if last == nil || ctx.Err() == nil {
			last = err // a try that was cut short says less than the one before it
		}
		if disbelieves(last) && !errors.As(last, new(astray)) {
			return &Unreachable{l.host, last} // trying again does not change a certificate
		}
		if errors.Is(context.Cause(ctx), context.Canceled) { // nobody wants it any more: connections may be good
			return &Unreachable{l.host, last}
		}
		l.http.CloseIdleConnections()
		select {
		case <-ctx.Done():
			return &Unreachable{l.host, last}
		case <-time.After(wait - time.Since(began)): // a try that took long was pause enough
		}
	}
}

func (l *Link) once(ctx context.Context, method, path string, body []byte, answer any) error {
	return l.onceBy(ctx, l.http, method, path, body, answer)
}

func (l *Link) onceBy(ctx context.Context, by *http.Client, method, path string, body []byte, answer any) error {
	req, err := http.NewRequestWithContext(ctx, method, "https://"+l.host+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := by.Do(req)
	var asked *url.Error
	if errors.As(err, &asked) {
		return quoting{asked.Err} // its URL says nothing that a person knows
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, answerLimit))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		problem := &migration.Problem{}
		if json.Unmarshal(data, problem) != nil || problem.Text == "" {
			return fmt.Errorf("agent %s answered %s", l.host, oneline.Of(resp.Status))
		}
		problem.Text = oneline.Of(problem.Text)
		return problem
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return &migration.Problem{Code: migration.CodePeer, Text: fmt.Sprintf("call agent %s: answer not understood: %s", l.host, oneline.Of(err.Error()))}
	}
	return nil
}

// pathless is the host to which no path is configured.
type pathless string

func (host pathless) Error() string { return fmt.Sprintf("no path to %s is configured", string(host)) }

// dialAny dials for calls. It starts on the best path and adds the next each dialStagger; the first
// that completes its handshake wins.
func (l *Link) dialAny(ctx context.Context) (net.Conn, error) {
	if len(l.paths) == 0 {
		return nil, pathless(l.host)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		conn net.Conn
		err  error
	}
	results := make(chan result, len(l.paths))
	for i, p := range l.paths {
		go func() {
			select {
			case <-time.After(time.Duration(i) * dialStagger):
			case <-ctx.Done():
				results <- result{err: ctx.Err()}
				return
			}
			conn, err := l.dial(ctx, p, "http/1.1", controlSilence, 0)
			results <- result{conn, err}
		}()
	}
	var first, stranger, nobody error
	for n := range l.paths {
		r := <-results
		if r.err == nil {
			cancel()
			go func() { // a slower path may still have made it
				for range len(l.paths) - n - 1 {
					if late := <-results; late.conn != nil {
						late.conn.Close()
					}
				}
			}()
			return r.conn, nil
		}
		if first == nil || errors.Is(first, context.Canceled) {
			first = r.err
		}
		if disbelieves(r.err) {
			stranger = cmp.Or(stranger, r.err)
		} else {
			nobody = cmp.Or(nobody, r.err)
		}
	}
	if stranger != nil && nobody != nil {
		return nil, astray{stranger, nobody}
	}
	return nil, first
}

// dial opens a TLS connection bound to one path's own uplink.
func (l *Link) dial(ctx context.Context, p Path, protocol string, silence time.Duration, pace int64) (net.Conn, error) {
	d := net.Dialer{
		LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(p.Local, 0)),
		Control:   socketOptions(silence, pace),
	}
	d.SetMultipathTCP(false) // one path each, on purpose
	if silence == controlSilence {
		d.KeepAliveConfig = net.KeepAliveConfig{Enable: true, Idle: controlProbe, Interval: controlProbe, Count: int(controlSilence / controlProbe)}
	}
	reaching, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	raw, err := reach(reaching, &d, netip.AddrPortFrom(p.Remote, l.port).String())
	if err != nil {
		return nil, fmt.Errorf("path %s: %w", p.Name, err)
	}
	conn, err := l.shake(ctx, raw, protocol)
	if err != nil {
		return nil, fmt.Errorf("path %s: %w", p.Name, err)
	}
	return conn, nil
}

// shake makes raw a TLS connection to the other agent. On error it is closed.
func (l *Link) shake(ctx context.Context, raw net.Conn, protocol string) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, shakeLimit)
	defer cancel()
	conn := tls.Client(raw, l.id.client(l.host, protocol))
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, quoting{err}
	}
	return conn, nil
}

// quoting is an error that may quote whoever answered, as one line: a certificate's names are read before it is seen
// whose it is.
type quoting struct{ error }

func (q quoting) Error() string { return oneline.Of(q.error.Error()) }

func (q quoting) Unwrap() error { return q.error }

// Reaches says why the other agent does not answer over a path; nil if it does.
func (l *Link) Reaches(ctx context.Context, p Path) error {
	conn, err := l.dial(ctx, p, "http/1.1", controlSilence, 0)
	if err != nil {
		return err
	}
	return conn.Close()
}

// reach connects to an address, and asks again each dialAgain while nothing is heard. The
// first that is answered wins; an error is the last one's.
func reach(ctx context.Context, d *net.Dialer, address string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		conn net.Conn
		err  error
	}
	results := make(chan result)
	pending := 0
	try := func() {
		pending++
		go func() {
			conn, err := d.DialContext(ctx, "tcp", address)
			results <- result{conn, err}
		}()
	}
	again := time.NewTicker(dialAgain)
	defer again.Stop()
	try()
	for {
		select {
		case <-again.C:
			if ctx.Err() == nil {
				try()
			}
		case r := <-results:
			if pending--; r.err != nil && pending > 0 {
				continue
			}
			go func() {
				for range pending { // another may have made it too
					if late := <-results; late.conn != nil {
						late.conn.Close()
					}
				}
			}()
			return r.conn, r.err
		}
	}
}

// socketOptions keep send queues short (so that what is sent next is decided
// late), end a connection after silence without an acknowledgement, have one for calls ask again soon, and send at
// most pace bytes per second (0: no limit; the kernel paces, SO_MAX_PACING_RATE).
func socketOptions(silence time.Duration, pace int64) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) {
			if pace > 0 {
				failed = paceTo(int(fd), pace)
			}
			// After a cut TCP asks again within seconds, where the kernel (6.15 and later) can.
			unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_RTO_MAX_MS, int(retryMost.Milliseconds())) //nolint:errcheck // older ones cannot
			if silence == controlSilence {
				unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_RTO_MIN_US, int(leastRetry.Microseconds())) //nolint:errcheck // as above
			}
			failed = errors.Join(failed,
				unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(silence.Milliseconds())),
				unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, 128<<10),
			)
		})
		return errors.Join(err, failed)
	}
}
