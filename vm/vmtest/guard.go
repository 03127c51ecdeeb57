package vmtest

import (
	"context"
	"io"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
)

// Guard ends a QEMU that outlives its test: by design it outlives whoever started it, and a test that is killed cleans
// nothing up. Two such guests ran for twenty minutes, and took both processors.
func Guard(t testing.TB, pid int) {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), "/bin/sh", "-c", `read -r over || kill -9 "$0"`, strconv.Itoa(pid))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // what ends the test's processes spares it
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		io.WriteString(in, "over\n") //nolint:errcheck // it has ended then
		in.Close()
		cmd.Wait() //nolint:errcheck // nothing depends on how it ended
	})
}
