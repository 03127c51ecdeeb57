package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/goccy/go-yaml"

	"godwit/agent/api"
	"godwit/agent/config"
	"godwit/internal/child"
	"godwit/internal/clock"
	"godwit/lab/topo"
	"godwit/netstate/netns"
)

// hostAgent is an agent's process on one host of the lab.
type hostAgent struct {
	host   topo.Host
	dir    string
	config config.Config
	env    []string // beside the lab's own
	client *api.Client

	mu       sync.Mutex
	cmd      *exec.Cmd
	done     chan struct{}
	launched time.Time     // of that process
	awaiting bool          // it was killed, and is to be started again
	killed   chan struct{} // done of the process that was killed last
}

// awaits plans a start of an agent that was killed. It says false if one is planned already.
func (h *hostAgent) awaits() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	was := h.awaiting
	h.awaiting = true
	return !was
}

// goneForGood says whether the agent has ended and nobody starts it again.
func (h *hostAgent) goneForGood() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-h.done:
		return !h.awaiting
	default:
		return false
	}
}

// starting says whether the agent was killed, and is to be started again.
func (h *hostAgent) starting() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.awaiting
}

// comesUp says whether one that does not answer may soon: it is to be started again, was started a moment ago, or is
// being killed, which tells which of these it will be.
func (h *hostAgent) comesUp() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-h.done:
		return h.awaiting
	default:
		return h.awaiting || h.killed != nil && h.killed == h.done || time.Since(h.launched) < agentReady
	}
}

// startAgain starts it after a while. One that does not come back is gone for good.
func (h *hostAgent) startAgain(ctx context.Context, after time.Duration) error {
	if !clock.Sleep(ctx, after) {
		h.awaited()
		return ctx.Err()
	}
	done, err := h.launch()
	if err != nil {
		h.awaited()
		return err
	}
	err = h.awaitReady(ctx, done)
	if h.wasKilled(done) { // as it came up: who did that says when it starts again
		return nil
	}
	return err
}

// wasKilled says whether the lab has killed that process.
func (h *hostAgent) wasKilled(done chan struct{}) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.killed == done
}

// awaited ends the plan to start it.
func (h *hostAgent) awaited() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.awaiting = false
}

// agentReady bounds how long an agent may take until it answers.
const agentReady = 20 * time.Second

// start runs the agent in its host's namespace and waits until it answers.
func (h *hostAgent) start(ctx context.Context) error {
	done, err := h.launch()
	if err != nil {
		return err
	}
	return h.awaitReady(ctx, done)
}

// launch begins the process; done is closed when it has ended.
func (h *hostAgent) launch() (done chan struct{}, err error) {
	if err := os.MkdirAll(h.dir, 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(h.dir, "agent.yaml")
	data, err := yaml.Marshal(h.config)
	if err != nil {
		return nil, fmt.Errorf("agent %s: %w", h.host.Name, err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return nil, err
	}
	logFile, err := os.OpenFile(h.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer logFile.Close()
	cmd := child.Command("agent", path)
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.Env = append(os.Environ(), h.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // as a service has; Ctrl-C is the lab's to handle
	if err := netns.Start(h.host.Namespace, cmd); err != nil {
		return nil, fmt.Errorf("start agent %s: %w", h.host.Name, err)
	}
	done = make(chan struct{})
	go func() {
		cmd.Wait() //nolint:errcheck // how it ended is in its log
		close(done)
	}()
	h.mu.Lock()
	h.cmd, h.done, h.launched = cmd, done, time.Now()
	h.awaiting = false // one that is killed before it answers is to start once more
	h.mu.Unlock()
	return done, nil
}

func (h *hostAgent) awaitReady(life context.Context, done chan struct{}) error {
	ctx, cancel := context.WithTimeout(life, agentReady)
	defer cancel()
	for {
		if _, err := h.client.Host(ctx); err == nil {
			return nil
		}
		select {
		case <-done:
			return fmt.Errorf("agent %s ended: %s", h.host.Name, lastLine(h.logPath()))
		case <-ctx.Done():
			if life.Err() != nil {
				return life.Err()
			}
			return fmt.Errorf("agent %s does not answer: %s", h.host.Name, lastLine(h.logPath()))
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (h *hostAgent) logPath() string { return filepath.Join(h.dir, "agent.log") }

// kill ends the agent's process alone, by SIGKILL.
func (h *hostAgent) kill() error {
	h.mu.Lock()
	cmd, done := h.cmd, h.done
	h.killed = done
	h.mu.Unlock()
	if cmd == nil {
		return errors.New("agent " + h.host.Name + " does not run")
	}
	if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-done
	return nil
}

// stop ends the host's guests and leases by its agent, then the agent. An agent
// that was killed is started once more, so that it cleans up what it left.
func (h *hostAgent) stop(ctx context.Context, log *slog.Logger) {
	h.mu.Lock()
	cmd, done := h.cmd, h.done
	h.mu.Unlock()
	if cmd == nil {
		return
	}
	select {
	case <-done:
		if err := h.start(ctx); err != nil {
			log.Warn("restart agent to clean up", "host", h.host.Name, "error", err)
			return
		}
		h.mu.Lock()
		cmd, done = h.cmd, h.done
		h.mu.Unlock()
	default:
	}
	if err := h.client.Shutdown(ctx); err != nil {
		log.Warn("clean up host", "host", h.host.Name, "error", err)
	}
	h.client.Close()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return
	}
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		cmd.Process.Kill() //nolint:errcheck // it may have ended just now
		<-done
	}
}

// lastLine is the end of a log, for an error.
func lastLine(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	end := len(data)
	for end > 0 && data[end-1] == '\n' {
		end--
	}
	start := end
	for start > 0 && data[start-1] != '\n' {
		start--
	}
	return string(data[start:end])
}

// keepLogs copies the run's logs to OUT/logs.
func (w *world) keepLogs() {
	if w.out == "" {
		return
	}
	to := filepath.Join(w.out, "logs")
	if err := os.MkdirAll(to, 0o755); err != nil {
		w.log.Warn("keep logs", "error", err)
		return
	}
	for name, a := range w.agents {
		copyFile(filepath.Join(to, "agent-"+name+".log"), a.logPath())
		guests, err := os.ReadDir(a.config.StatePath("logs"))
		if err != nil {
			continue
		}
		for _, g := range guests {
			copyFile(filepath.Join(to, name+"-"+g.Name()), a.config.StatePath("logs", g.Name()))
		}
	}
}

func copyFile(to, from string) {
	in, err := os.Open(from)
	if err != nil {
		return
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return
	}
	defer out.Close()
	io.Copy(out, in) //nolint:errcheck // a log that could not be kept is not worth an error
}
