// Command guest is the first process of the lab's guests: it sets the machine up,
// serves the guest channel (package vm/guest) and the guest's services, and takes
// in orphans. It is built static and is the only program the image needs beside a
// shell and iperf3.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"time"

	"godwit/lab/traffic/serve"
	"godwit/vm/guest"
)

// memoryLimit keeps Go's heap small: the guest's memory belongs to its workloads,
// and what the heap touches is dirtied memory in a migration.
const memoryLimit = 40 << 20

func main() {
	if len(os.Args) > 1 && os.Args[1] == spinArgument {
		spin()
	}
	if len(os.Args) > 1 && os.Args[1] == echoArgument {
		fmt.Fprintln(os.Stderr, "guest:", serve.Echo())
		os.Exit(1)
	}
	if len(os.Args) > 1 && os.Args[1] == beatArgument {
		if err := beat(); err != nil {
			fmt.Fprintln(os.Stderr, "guest:", err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) > 1 && os.Args[1] == servicesArgument {
		fmt.Fprintln(os.Stderr, "guest:", runServices())
		os.Exit(1)
	}
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "guest: this is the first process of a lab guest, and does nothing else")
		os.Exit(2)
	}
	debug.SetMemoryLimit(memoryLimit)
	debug.SetGCPercent(200)
	if err := boot(); err != nil {
		halt("boot", err)
	}
	children := &family{}
	go children.reap()
	if err := first(); err != nil {
		say("%v", err)
	}
	keep("services", children, func() *exec.Cmd { return exec.Command("/proc/self/exe", servicesArgument) })
	awaitServices() // who reaches the guest's channel takes it for ready
	startIperf(children)
	startEcho(children)
	ticks, err := newTicks()
	if err != nil {
		halt("ticks", err)
	}
	node := newNode(children, ticks)
	for {
		port, err := openPort(guest.PortName)
		if err != nil {
			say("guest channel: %v", err)
			time.Sleep(time.Second)
			continue
		}
		if err := ticks.on(port, children); err != nil {
			say("%v", err)
		}
		err = node.server.Serve(context.Background(), port, port)
		say("guest channel: %v", err)
		port.Close()
	}
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
