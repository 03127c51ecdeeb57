package inlet

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"godwit/internal/child"
	"godwit/internal/socket"
)

func init() { child.Register("inlet", process) }

// process is the child: its socket as the only argument, "ready" or an error as one line
// on stdout, log on stderr.
func process(args []string) int {
	signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE, syscall.SIGINT)
	if len(args) != 1 {
		return 2
	}
	listener, err := socket.Listen(args[0])
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("ready")
	os.Stdout.Close()
	if err := Serve(listener); err != nil {
		fmt.Fprintln(os.Stderr, "inlet:", err)
		return 1
	}
	return 0
}

// readyLimit bounds the start of the process.
const readyLimit = 5 * time.Second

// Start starts an inlet on socket, and returns when it listens. Its log goes to the file
// log. It ends by itself; see the package comment.
func Start(ctx context.Context, socket, log string) error {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("start inlet: %w", err)
	}
	defer out.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start inlet: %w", err)
	}
	defer r.Close()
	cmd := child.Command("inlet", socket)
	cmd.Stdout, cmd.Stderr, cmd.Dir = w, out, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	w.Close()
	if err != nil {
		return fmt.Errorf("start inlet: %w", err)
	}
	go reap(cmd)
	r.SetReadDeadline(time.Now().Add(readyLimit)) //nolint:errcheck // the read says so
	stop := context.AfterFunc(ctx, func() { r.SetReadDeadline(time.Now()) })
	defer stop()
	line, err := bufio.NewReader(io.LimitReader(r, 4096)).ReadString('\n')
	if line = strings.TrimSpace(line); line == "ready" {
		return nil
	}
	cmd.Process.Kill() //nolint:errcheck // it has ended, or does now
	if line != "" {
		return fmt.Errorf("start inlet: %s", line)
	}
	return fmt.Errorf("start inlet: its process said nothing: %w", err)
}

// reap waits for an inlet, which may outlive all that its agent does.
func reap(process interface{ Wait() error }) { process.Wait() } //nolint:errcheck // it tells its client
