package lab

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"godwit/internal/child"
	"godwit/lab/topo"
)

func init() { child.Register("reaper", reaperMain) }

// guard starts a process that outlives this one and, when this one ends without
// having cleaned up (killed, say), removes what the run made.
func guard(id, dir string) (stop func(), err error) {
	cmd := child.Command("reaper", id, dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the guard of the run: %w", err)
	}
	return func() {
		io.WriteString(in, "done\n") //nolint:errcheck // it looks by itself otherwise
		in.Close()
		cmd.Wait() //nolint:errcheck // nothing depends on how it ended
	}, nil
}

// reaperMain waits for the end of its parent. A word before it means that all is
// clean already.
func reaperMain(args []string) int {
	if len(args) != 2 {
		return 2
	}
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	said, err := io.ReadAll(os.Stdin)
	if err == nil && len(said) > 0 {
		return 0
	}
	if topo.Remove(args[0]) != nil || unhurt(args[0], args[1]) != nil || os.RemoveAll(args[1]) != nil {
		return 1
	}
	return 0
}
