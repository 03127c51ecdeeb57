package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// takeDirs makes the agent's directories, and keeps them from another agent until unlock.
func (a *Agent) takeDirs() (unlock func(), err error) {
	for _, dir := range []string{a.config.State, a.config.Run} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("%w; state and run of the configuration must name directories that can be written", err)
		}
	}
	state, err := os.Open(a.config.State)
	if err != nil {
		return nil, err
	}
	if err := flock(state); errors.Is(err, unix.EWOULDBLOCK) { // not every file system locks directories
		state.Close()
		return nil, fmt.Errorf("another agent has the state in %s, and both would go on with the same migrations; give each its own", a.config.State)
	}
	unlockRun, err := lockDir(a.config.Run)
	if err != nil {
		state.Close()
		return nil, err
	}
	return func() { unlockRun(); state.Close() }, nil
}

// lockDir makes sure that one agent serves one run directory.
func lockDir(dir string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, "agent.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("another agent runs with %s: %w", dir, err)
	}
	return func() { f.Close() }, nil
}

func flock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }
