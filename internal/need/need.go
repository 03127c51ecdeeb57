// Package need states what a test cannot do without.
//
// A test that lacks it is skipped with the reason; where GODWIT_REQUIRE=1 is set
// (make test and CI set it, after installing everything) the lack is a failure,
// so that no skip hides.
package need

import (
	"os"
	"os/exec"
	"testing"
)

// Root asks for the rights to make namespaces and taps.
func Root(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		lack(t, "needs root, to make network namespaces")
	}
}

// Program asks for an executable on PATH.
func Program(t testing.TB, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		lack(t, "needs the program "+name+": run `make build`")
	}
}

// QEMU asks for root and a QEMU that can run a guest here.
func QEMU(t testing.TB) {
	t.Helper()
	if os.Getenv("GODWIT_GUESTS") == "off" {
		t.Skip("GODWIT_GUESTS=off: no guests in this run")
	}
	Root(t)
	Program(t, "qemu-system-x86_64")
}

// File asks for a file that `make build` makes.
func File(t testing.TB, path string) {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		lack(t, "needs "+path+": run `make build`")
	}
}

func lack(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("GODWIT_REQUIRE") == "1" {
		t.Fatal(why)
	}
	t.Skip(why)
}
