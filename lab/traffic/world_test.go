package traffic

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"godwit/internal/child"
	"godwit/internal/need"
	"godwit/lab/traffic/record"
	"godwit/lab/traffic/serve"
	"godwit/netstate/netns"
)

// serveChild runs the guest's services as a process, which a test can pause.
const serveChild = "traffic-test-serve"

func TestMain(m *testing.M) {
	child.Register(serveChild, func([]string) int {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		if err := serve.Start(ctx); err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println("ready")
		<-ctx.Done()
		return 0
	})
	child.Dispatch()
	os.Exit(m.Run())
}

var loopback = netip.MustParseAddr("127.0.0.1")

var worlds atomic.Int32

// namespace makes an empty one with its loopback up.
func namespace(t *testing.T) string {
	t.Helper()
	need.Root(t)
	name := fmt.Sprintf("t-traffic-%d-%d", os.Getpid(), worlds.Add(1))
	if err := netns.Create(name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := netns.Delete(name); err != nil {
			t.Error(err)
		}
	})
	err := netns.Do(name, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	})
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// guest starts the services in a namespace of their own.
func guest(t *testing.T) (name string, server *os.Process) {
	t.Helper()
	name = namespace(t)
	cmd := child.Command(serveChild)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := netns.Start(name, cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	said := make([]byte, 200)
	if n, err := out.Read(said); err != nil || string(said[:n]) != "ready\n" {
		t.Fatalf("services said %q, %v", said[:n], err)
	}
	return name, cmd.Process
}

// listens waits until somebody listens at a TCP port of a namespace.
func listens(t *testing.T, name string, port uint16) {
	t.Helper()
	entry := regexp.MustCompile(fmt.Sprintf(`(?m)^ *\d+: [0-9A-F]+:%04X [0-9A-F:]+ 0A `, port)) // TCP_LISTEN, proc_pid_net(5)
	for until := time.Now().Add(10 * time.Second); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		var text []byte
		if err := netns.Do(name, func() error {
			for _, of := range []string{"tcp", "tcp6"} {
				table, err := os.ReadFile("/proc/thread-self/net/" + of)
				if err != nil {
					return err
				}
				text = append(text, table...)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if entry.Match(text) {
			return
		}
	}
	t.Fatalf("nobody listens at port %d", port)
}

func client(t *testing.T, name string) *Client {
	t.Helper()
	c, err := StartClient(context.Background(), name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := leave(c); err != nil {
			t.Error(err)
		}
	})
	return c
}

// leave is Close for a client that ends when a busy machine lets it: longer than Close waits before it kills it.
func leave(c *Client) error {
	_ = c.p.in.Close()
	<-c.p.done
	return c.Close()
}

func begin(t *testing.T, c *Client, f Flow) {
	t.Helper()
	if !f.Target.IsValid() {
		f.Target = loopback
	}
	if err := c.Start(f); err != nil {
		t.Fatal(err)
	}
}

func end(t *testing.T, c *Client, name string) Result {
	t.Helper()
	r, err := c.Stop(name)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// pause stops the guest's services for a while: for least and for most how long.
func pause(t *testing.T, p *os.Process, length time.Duration) (least, most time.Duration) {
	t.Helper()
	asked := time.Now()
	need.Stop(t, p.Pid)
	stopped := time.Now()
	time.Sleep(length)
	least = time.Since(stopped)
	if err := p.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	return least, time.Since(asked)
}

// listen opens a TCP port of all addresses in a namespace and serves each
// connection until the test ends.
func listen(t *testing.T, name string, port uint16, serve func(*net.TCPConn)) {
	t.Helper()
	var l net.Listener
	err := netns.Do(name, func() (err error) {
		l, err = net.Listen("tcp4", fmt.Sprintf("0.0.0.0:%d", port))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c.(*net.TCPConn))
		}
	}()
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	need.Program(t, args[0])
	cmd := exec.Command(args[0], args[1:]...)
	var said tail
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := netns.Start(name, cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %v: %s", args, err, said.String())
	}
}

// hello reads what a client says at first.
func hello(c *net.TCPConn) (*record.Reader, record.Hello, error) {
	in := record.NewReader(c, 4096, now)
	line, err := in.Line(record.MaxHello)
	if err != nil {
		return nil, record.Hello{}, err
	}
	h, err := record.ParseHello(line)
	return in, h, err
}
