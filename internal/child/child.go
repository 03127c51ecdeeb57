// Package child runs parts of godwit as processes of their own.
//
// A link of the lab, a client's traffic or a user-space tunnel lives in its own
// process, so that it outlives (or is outlived by) the process that started it.
// All of them are the same binary: a package registers an entry point by name,
// and main calls Dispatch before anything else.
package child

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// prefix marks the first argument of a child process: `godwit _link …`.
const prefix = "_"

// hidden marks commands that no person types, such as the __complete that a shell's
// completion script calls: they are main's, and no child.
const hidden = "__"

// Entry is the main function of a child. args excludes the child's own name.
// Its result is the exit status.
type Entry func(args []string) int

var entries = map[string]Entry{}

// Register makes entry available under name. Call it from init.
func Register(name string, entry Entry) { entries[name] = entry }

// Dispatch runs the child that the command line names and exits, or returns if
// it names none. Call it first in main and in TestMain of tests that start children.
func Dispatch() {
	if len(os.Args) < 2 || !strings.HasPrefix(os.Args[1], prefix) || strings.HasPrefix(os.Args[1], hidden) {
		return
	}
	name := strings.TrimPrefix(os.Args[1], prefix)
	entry, ok := entries[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "godwit: unknown child process %q\n", name)
		os.Exit(2)
	}
	os.Exit(entry(os.Args[2:]))
}

// Command returns an unstarted command that runs the child name of this binary.
func Command(name string, args ...string) *exec.Cmd {
	return exec.Command("/proc/self/exe", append([]string{prefix + name}, args...)...)
}
