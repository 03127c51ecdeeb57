package need

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// inside marks the process that [Namespace] started.
const inside = "GODWIT_TEST_NETNS"

// Namespace is a package's TestMain: it runs the tests again in a network namespace of
// their own. Every thread of that process is in it, and what they make there ends with
// the process. Without root the tests run where they are; each asks for [Root] itself.
func Namespace(m *testing.M) {
	if os.Geteuid() != 0 || os.Getenv(inside) != "" {
		os.Exit(m.Run())
	}
	command := exec.CommandContext(context.Background(), "/proc/self/exe", os.Args[1:]...)
	command.Env = append(os.Environ(), inside+"=1")
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := command.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "tests in a namespace:", err)
		os.Exit(1)
	}
}
