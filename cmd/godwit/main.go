// Command godwit moves running virtual machines to other networks while their
// clients stay connected. One file a subcommand, wiring only.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"godwit/agent"
	"godwit/internal/child"
)

// version is set by the build.
var version = "dev"

func main() {
	agent.Version = version
	child.Dispatch()
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// outlivesReader are commands that make what they promise also where nobody reads their output any more, as of
// `godwit lab run FILE 2>&1 | tee log` after Ctrl-C, which tee hears first.
var outlivesReader = []string{"lab", "demo", "bench", "agent"}

// takesAway are those that take their time to end, as they remove what they have made. An agent leaves it for the next one.
var takesAway = []string{"lab", "demo", "bench"}

func run(args []string, out, errOut io.Writer) int {
	ends := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as by nohup
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	defer stop()
	if len(args) > 0 && slices.Contains(takesAway, args[0]) {
		defer answerSecondSignal(errOut, ends)()
	}
	stdout := &output{Writer: out, alone: len(args) > 0 && slices.Contains(outlivesReader, args[0])}
	if stdout.alone {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // not ignored: children would inherit that
	}
	root := newRoot(stdout)
	root.SetArgs(args)
	root.SetErr(errOut)
	c, err := root.ExecuteContextC(ctx)
	if err = stdout.ended(err); err == nil {
		return exitDone
	}
	if !errors.Is(err, errSaid) {
		for line := range strings.Lines(inWords(err)) { // of a scenario file there may be several, each an error
			fmt.Fprintln(errOut, "godwit:", strings.TrimSuffix(line, "\n"))
		}
		if wantsJSON(c, args) {
			stdout.fail(codeOf(ctx, err), inWords(err))
		}
	}
	return statusOf(err)
}

func newRoot(out io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "godwit",
		Short: "move running virtual machines to other networks while their clients stay connected",
		Example: `  godwit demo                           # a real migration before your eyes
  godwit lab run examples/cross-subnet.yaml --out /tmp/run
  godwit migrate web sanjose --watch`,
		SilenceUsage: true, SilenceErrors: true,
		Version: fmt.Sprintf("%s (%s)", version, runtime.Version()),
	}
	root.SetOut(out) // before explain: who completes keeps what is set then

	root.SetVersionTemplate("godwit {{.Version}}\n") // as `godwit version` says it
	root.PersistentFlags().Bool("json", false, "print JSON for programs")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return wrongly(c, readable(err))
	})
	root.AddCommand(
		newAgent(), newDemo(), newLab(), newMigrate(), newEvacuate(), newPlan(), newLimit(), newAbort(), newRecover(), newWatch(), newEvents(), newHistory(), newMetrics(),
		newGuest(), newHost(), newSite(), newDoctor(), newBench(), newInit(), newVersion(),
	)
	root.AddCommand(newNotYet()...)
	explain(root)
	strict(root)
	filesAlone(root)
	return root
}

// explain makes the commands that cobra would add by itself, which strict must see, too.
func explain(root *cobra.Command) {
	root.SetHelpCommand(&cobra.Command{
		Use: "help [COMMAND]", Short: "show the help of a command", Example: "  godwit help lab run",
		RunE: func(c *cobra.Command, args []string) error {
			about, rest, err := c.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return usageError{fmt.Errorf("unknown command %q of %s; see `%s --help`", strings.Join(args, " "), c.Root().Name(), c.Root().Name())}
			}
			return about.Help()
		},
		Args: cobra.ArbitraryArgs, ValidArgsFunction: commandNames,
	})
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() != "completion" {
			continue
		}
		c.Short, c.Example = "print the script by which a shell completes godwit's commands", "  source <(godwit completion bash)"
		for _, shell := range c.Commands() {
			shell.Short, shell.Example = "print "+shell.Name()+"'s", "  godwit completion "+shell.Name()
			shell.Args = argsExactly(0, "no arguments")
		}
	}
}

// strict makes wrong words and numbers of arguments errors of the one who typed, in one
// line: by itself a command with subcommands shows its help, and is content.
func strict(c *cobra.Command) {
	for _, sub := range c.Commands() {
		strict(sub)
	}
	c.InitDefaultHelpFlag() // cobra looks for the command before it adds it, and takes the word after an unknown flag for its value
	if c.HasSubCommands() && !c.Runnable() {
		c.Args, c.RunE = cobra.ArbitraryArgs, group
	}
	check := c.Args
	if check == nil {
		check = cobra.NoArgs
	}
	c.Args = func(c *cobra.Command, args []string) error {
		err := cmp.Or(check(c, args), nothingEmpty(c, args))
		var usage usageError
		if err == nil || errors.As(err, &usage) {
			return err
		}
		return wrongly(c, err)
	}
}

// nothingEmpty refuses what a script passes on of a variable that is not set: it would be taken for a flag that was not
// given.
func nothingEmpty(c *cobra.Command, args []string) (err error) {
	if slices.Contains(args, "") {
		return errors.New("an argument is empty")
	}
	c.Flags().Visit(func(f *pflag.Flag) {
		if f.Value.String() == "" {
			err = fmt.Errorf("--%s is empty", f.Name)
		}
	})
	return err
}

// wrongly is an error of who typed c, whose line says godwit once.
func wrongly(c *cobra.Command, err error) error {
	words := strings.Fields(c.CommandPath())[1:]
	if len(words) > 0 {
		err = fmt.Errorf("%s: %w", strings.Join(words, " "), err)
	}
	return usageError{fmt.Errorf("%w; see `%s --help`", err, c.CommandPath())}
}

// group is a command that has only subcommands: without one it does nothing, which no script
// is to take for done.
func group(c *cobra.Command, args []string) error {
	if len(args) == 0 && asJSON(c) {
		return wrongly(c, errors.New("does nothing without one of its commands"))
	}
	if len(args) == 0 {
		c.SetOut(c.ErrOrStderr())
		if err := c.Help(); err != nil {
			return err
		}
		return usageError{errSaid}
	}
	guess := ""
	c.SuggestionsMinimumDistance = min(2, (len(args[0])+1)/2) // slips that one may have made; cobra looks for none by itself
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		guess = " (did you mean " + strings.Join(near, ", ") + "?)"
	}
	return usageError{fmt.Errorf("unknown command %q of %s%s; see `%s --help`", args[0], c.CommandPath(), guess, c.CommandPath())}
}

// argsExactly checks the number of arguments, with an error of one line.
func argsExactly(n int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != n {
			return wrongly(c, errors.New("takes "+what))
		}
		return nil
	}
}

// argsAtMostOne checks the same of what may be left out.
func argsAtMostOne(what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) > 1 {
			return wrongly(c, errors.New("takes "+what+", or nothing"))
		}
		return nil
	}
}

// asJSON says whether --json was given.
func asJSON(c *cobra.Command) bool {
	v, err := c.Flags().GetBool("json")
	return err == nil && v
}

// printJSON writes value, indented.
func printJSON(w io.Writer, value any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(value)
}

// printLine writes value as one line of a stream, which a program reads line by line.
func printLine(c *cobra.Command, value any) error {
	if out, ok := c.OutOrStdout().(*output); ok {
		out.stream = true
	}
	return json.NewEncoder(c.OutOrStdout()).Encode(value)
}

// inColour says whether what is printed to f may have colours: on a terminal, where NO_COLOR (no-color.org) is not set.
func inColour(f *os.File) bool { return isTerminal(f) && os.Getenv("NO_COLOR") == "" }

// isTerminal says whether f is one that can be drawn on. Other devices of characters, as
// /dev/null or a virtio port, are not.
func isTerminal(f *os.File) bool {
	if name := os.Getenv("TERM"); name == "" || name == "dumb" {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// rowsOf is how many rows a terminal has; 0: it does not say.
func rowsOf(f *os.File) int {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Row)
}
