package image

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// TestMain runs the tests again in a network namespace of their own, as root: the
// guest's taps and its client live there, and end with it.
func TestMain(m *testing.M) {
	if os.Geteuid() != 0 || os.Getenv("GODWIT_TEST_NETNS") != "" {
		os.Exit(m.Run())
	}
	command := exec.Command("/proc/self/exe", os.Args[1:]...)
	command.Env = append(os.Environ(), "GODWIT_TEST_NETNS=1")
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := command.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "tests in a namespace:", err)
		os.Exit(1)
	}
}
