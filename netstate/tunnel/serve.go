package tunnel

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"godwit/internal/child"
	"godwit/internal/clock"
	"godwit/internal/lasting"
)

func init() { child.Register("tunnel", serve) }

// request is one line to the control socket.
type request struct {
	Op    string    `json:"op"`
	Until time.Time `json:"until,omitzero"`
}

// answer is one line from it.
type answer struct {
	Status
	Error string `json:"error,omitempty"`
}

// keeper is the process of one tunnel.
type keeper struct {
	config Config
	carrier
	kernel bool
	stop   context.CancelCauseFunc
	lease  *time.Timer
	asks   chan func() // run by the keeper's one goroutine
}

// serve is the child: configuration as JSON on stdin, "ready" or an error as one
// line on stdout, log on stderr.
func serve([]string) int {
	signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE, syscall.SIGINT)
	var c Config
	err := json.NewDecoder(io.LimitReader(os.Stdin, 64<<10)).Decode(&c)
	if err == nil {
		err = c.complete(clock.Now())
	}
	if err == nil {
		err = keep(c)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// keep runs the tunnel until its end and leaves nothing. It returns an error only
// if the tunnel did not come up, or nobody heard that it did.
func keep(c Config) error {
	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM) // also of who gives up while it is made: nothing is left then
	left, err := free(ctx, c)
	if err != nil {
		return err
	}
	control, err := net.Listen("unix", c.socket())
	if err != nil {
		return fmt.Errorf("open control socket: %w", err)
	}
	defer control.Close()
	if err := os.Chmod(c.socket(), 0o600); err != nil {
		return err
	}
	carrier, kernel, err := carryOn(c, left)
	if err != nil {
		return err
	}
	defer carrier.close()
	gone, err := watch(ctx, c.Name)
	if err != nil {
		return err
	}
	k := &keeper{config: c, carrier: carrier, kernel: kernel, stop: stop, lease: time.NewTimer(clock.Until(c.Lease)), asks: make(chan func())}
	if err := k.write(); err != nil {
		return err
	}
	defer os.Remove(c.record())
	go k.listen(ctx, control)
	if _, err := fmt.Println("ready"); err != nil { // its agent was killed, and the next may have looked for tunnels of no detour already
		os.Remove(c.log())
		return fmt.Errorf("nobody waits for it: %w", err)
	}
	os.Stdout.Close()
	os.Stdin.Close()
	alive := time.After(aliveAfter)
	for {
		select {
		case ask := <-k.asks:
			ask()
		case <-alive:
			k.live()
		case <-ctx.Done():
			log.Printf("tunnel %s: ends: %v", c.Name, context.Cause(ctx))
			return nil
		case <-gone:
			stop(errors.New("its device is gone"))
		case <-carrier.ended():
			stop(errors.New("its device has ended"))
		case <-k.lease.C: // by what was left of it when it was given: the clock may have been set back since, by years
			stop(errors.New("its lease has passed"))
		case s := <-term:
			stop(errors.New(s.String()))
		}
	}
}

// watch returns what is closed when the device of that name, which exists, is gone.
func watch(ctx context.Context, name string) (<-chan struct{}, error) {
	updates, unsubscribe, err := linkUpdates(ctx)
	if err != nil {
		return nil, err
	}
	device, err := netlink.LinkByName(name)
	if err != nil {
		unsubscribe()
		return nil, err
	}
	gone, index := make(chan struct{}), device.Attrs().Index
	go func() {
		for !deleted(updates, index) {
			unsubscribe()
			if !clock.Sleep(ctx, subscribeAgain) {
				return
			}
			// The kernel ended it: more has changed than was taken in time, and this may have been in it.
			updates, unsubscribe, _ = linkUpdates(ctx)
			if _, err := netlink.LinkByIndex(index); errors.As(err, new(netlink.LinkNotFoundError)) {
				break
			}
		}
		unsubscribe()
		close(gone)
	}()
	return gone, nil
}

const (
	subscribeAgain  = 100 * time.Millisecond
	subscribeBuffer = 1 << 20 // bytes, some hundred changes
)

// linkUpdates are changes of this namespace's devices; closed where the kernel has ended it. On error it is closed, too.
func linkUpdates(ctx context.Context) (<-chan netlink.LinkUpdate, context.CancelFunc, error) {
	ctx, end := context.WithCancel(ctx)
	updates := make(chan netlink.LinkUpdate, 64)
	err := netlink.LinkSubscribeWithOptions(updates, ctx.Done(), netlink.LinkSubscribeOptions{ReceiveBufferSize: subscribeBuffer, ReceiveBufferForceSize: true})
	if err != nil {
		close(updates)
		return updates, end, fmt.Errorf("watch devices: %w", err)
	}
	return updates, end, nil
}

// deleted returns true when the device of that index is, and false when updates end.
func deleted(updates <-chan netlink.LinkUpdate, index int) bool {
	for u := range updates {
		if u.Header.Type == unix.RTM_DELLINK && u.Attrs().Index == index {
			return true
		}
	}
	return false
}

// listen hears requests until control is closed. A tunnel that is never heard again would end by its lease, whoever uses it.
func (k *keeper) listen(ctx context.Context, control net.Listener) {
	control = lasting.Listener(control, func(err error) { log.Printf("tunnel %s: is not heard: %v", k.config.Name, err) })
	for {
		conn, err := control.Accept()
		if err != nil {
			return
		}
		go k.talk(ctx, conn)
	}
}

// talk answers the requests of one connection, which may take a minute at most.
func (k *keeper) talk(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	lines := bufio.NewScanner(io.LimitReader(conn, 64<<10))
	for lines.Scan() {
		var req request
		reply := make(chan answer, 1)
		err := json.Unmarshal(lines.Bytes(), &req)
		ask := func() {
			if err == nil {
				err = k.do(req)
			}
			a := answer{Status: k.status()}
			if err != nil {
				a.Error = err.Error()
			}
			reply <- a
		}
		select {
		case k.asks <- ask:
			_ = json.NewEncoder(conn).Encode(<-reply)
		case <-ctx.Done():
			return
		}
		if req.Op == "stop" {
			k.stop(errors.New("told to"))
		}
	}
}

// do carries a request out, on the keeper's goroutine.
func (k *keeper) do(req request) error {
	switch req.Op {
	case "status", "stop":
		return nil
	case "lease":
		if req.Until.IsZero() {
			return errors.New("lease without a time")
		}
		k.config.Lease = req.Until
		k.lease.Reset(clock.Until(req.Until))
		k.live()
		return k.write()
	}
	return fmt.Errorf("unknown request %q", req.Op)
}

// live is keepAlive, for a tunnel that serves without it, too.
func (k *keeper) live() {
	if err := k.keepAlive(); err != nil {
		log.Printf("tunnel %s: after this host's clock is set back it may carry nothing for as long: %v", k.config.Name, err)
	}
}

func (k *keeper) status() Status {
	c := k.config
	s := Status{Name: c.Name, Kind: c.Kind, Kernel: k.kernel, Alive: true, PID: os.Getpid(), Local: c.Local, Remote: c.Remote,
		Inner: c.Inner, PeerInner: c.PeerInner, MTU: c.MTU, Lease: c.Lease}
	if c.Kind == WireGuard {
		s.PeerKey = c.PeerKey.String()
	}
	if link, err := netlink.LinkByName(c.Name); err == nil && link.Attrs().Statistics != nil {
		s.RxBytes, s.TxBytes = link.Attrs().Statistics.RxBytes, link.Attrs().Statistics.TxBytes
	}
	return s
}

// write records what this tunnel is, for people and for Found.
func (k *keeper) write() error {
	b, err := json.Marshal(k.status())
	if err == nil {
		err = os.WriteFile(k.config.halfRecord(), b, 0o600)
	}
	if err == nil {
		err = os.Rename(k.config.halfRecord(), k.config.record())
	}
	if err != nil {
		return fmt.Errorf("write record of tunnel: %w", err)
	}
	return nil
}
