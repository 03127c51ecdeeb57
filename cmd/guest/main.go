// Command guest serves the guest channel (package vm/guest) inside of a guest. It is
// built static, and is three programs in one:
//
//   - the first process of the lab's image tiny: it also sets the machine up, serves
//     the lab's traffic and takes in orphans; the only program that image needs beside
//     a shell and iperf3;
//   - with switch-root, the first process of the lab's Debian guests, until it hands
//     the machine to systemd;
//   - `godwit-guest serve`, the helper of an ordinary guest.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"godwit/internal/sysmon"
	"godwit/lab/traffic/serve"
	"godwit/vm/guest"
)

// leastHeap and heapShare keep Go's heap small: the guest's memory belongs to its
// workloads, and what the heap touches is dirtied memory in a migration. Thousands of
// connections need more, and guests that have room for them have it. In one that is smaller than
// roomy it is collected before it has grown by 2 MiB instead of 8: there are several of them, and 16 MiB
// were what such a guest had left.
const (
	leastHeap = 40 << 20
	heapShare = 8 // of the guest's memory, one part in so many
	roomy     = 192 << 20
)

func keepSmall() {
	var machine unix.Sysinfo_t
	if err := unix.Sysinfo(&machine); err != nil {
		machine = unix.Sysinfo_t{}
	}
	memory := int64(machine.Totalram) * int64(machine.Unit)
	debug.SetMemoryLimit(max(leastHeap, memory/heapShare))
	debug.SetGCPercent(200)
	if memory < roomy {
		debug.SetGCPercent(50) // of the 4 MiB at which Go begins
	}
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == spinArgument {
		spin()
	}
	_ = sysmon.Calm() // the first process has no /proc yet
	if len(os.Args) > 1 && os.Args[1] == echoArgument {
		fmt.Fprintln(os.Stderr, "guest:", serve.Echo())
		os.Exit(1)
	}
	if len(os.Args) > 1 && os.Args[1] == ticksArgument {
		fmt.Fprintln(os.Stderr, "guest:", runTicks())
		os.Exit(1)
	}
	if len(os.Args) > 1 && os.Args[1] == servicesArgument {
		fmt.Fprintln(os.Stderr, "guest:", runServices(os.Args[2:]))
		os.Exit(1)
	}
	if os.Getpid() != 1 {
		os.Exit(ordinary(os.Args[1:]))
	}
	if slices.Contains(os.Args, switchRootArgument) { // beside other words that the kernel does not know
		halt("hand the machine over", switchRoot())
	}
	keepSmall()
	if err := boot(); err != nil {
		halt("boot", err)
	}
	if err := sysmon.Calm(); err != nil {
		say("%v", err)
	}
	children := &family{}
	go children.reap()
	if err := first(); err != nil {
		say("%v", err)
	}
	startServices(children, withHTTP) // who reaches the guest's channel takes it for ready
	startIperf(children)
	node := newNode(children)
	node.serve(context.Background(), guest.PortName, node.all())
}

// errAsked is of who asked wrongly.
var errAsked = errors.New("godwit-guest")

// ordinary is the program where it is not the first process.
func ordinary(args []string) int {
	if len(args) == 1 && (args[0] == "-h" || args[0] == "--help") {
		fmt.Print(helperUsage)
		return 0
	}
	if len(args) == 0 || args[0] != serveArgument {
		fmt.Fprint(os.Stderr, helperUsage)
		return 2
	}
	err := helper(args[1:])
	switch {
	case err == nil:
		return 0
	case err == errAsked: //nolint:errorlint // the flags have said what is wrong
	case errors.Is(err, errAsked):
		fmt.Fprintln(os.Stderr, err)
	default:
		fmt.Fprintln(os.Stderr, "godwit-guest:", err)
		return 1
	}
	return 2
}

// say writes a line to the console.
func say(format string, args ...any) { fmt.Printf("guest: "+format+"\n", args...) }

// halt says why the guest cannot be, and ends it in a way that the host sees: a
// first process that exits is a kernel panic.
func halt(what string, err error) {
	say("%s: %v", what, err)
	time.Sleep(100 * time.Millisecond)
	os.Exit(1)
}

const spinArgument = "spin"

// spin keeps one CPU busy for ever.
func spin() {
	runtime.GOMAXPROCS(1)
	for n := uint64(1); n != 0; n = n*6364136223846793005 + 1 {
	}
}
