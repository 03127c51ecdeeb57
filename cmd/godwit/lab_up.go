package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"godwit/lab"
)

func newLabUp() *cobra.Command {
	var steps bool
	c := &cobra.Command{
		Use: "up FILE", Short: "build a scenario's sites, guests and traffic, and keep them for you to use",
		Long: `Builds what 'lab run' builds of a scenario file: sites, hosts with their agents, booted
guests, clients, traffic. Its steps are not carried out (--steps does), and nothing is
judged: prints how to reach each part, and keeps all until Ctrl-C or 'godwit lab down ID'.
Then everything is taken down, shells in its namespaces too. Exit status: 0 it stood and
is gone, 1 not, 2 the scenario is unusable.`,
		Example: "  godwit lab up examples/cross-subnet.yaml\n  godwit lab up examples/cross-subnet.yaml --json",
		Args:    argsExactly(1, "one scenario file"),
		RunE: func(c *cobra.Command, args []string) error {
			s, err := readScenario(c, args[0])
			if err != nil {
				return err
			}
			if err := needRoot(); err != nil {
				return err
			}
			view := newView()
			opts := lab.Options{Tell: view.Log, Log: labLog()}
			if isTerminal(os.Stderr) { // a line each second would bury what it says
				opts.Live = view.Update
			}
			err = lab.Up(c.Context(), s, opts, steps, func(standing lab.Standing) {
				if asJSON(c) {
					printJSON(c.OutOrStdout(), standing) //nolint:errcheck // the lab stands, whoever reads
					return
				}
				sayStanding(c.OutOrStdout(), called(os.Args[0]), standing)
			})
			view.Close()
			if errors.Is(err, lab.ErrUnusable) {
				return usageError{err}
			}
			return err
		},
	}
	c.Flags().BoolVar(&steps, "steps", false, "carry out the scenario's steps, too, by their times from now on")
	return c
}

// called is this program as another terminal finds it, which may be in another directory.
func called(name string) string {
	if whole, err := filepath.Abs(name); err == nil && strings.Contains(name, "/") {
		return whole
	}
	return name // by PATH
}

// sayStanding says how to reach what stands, by a program of that name.
func sayStanding(w io.Writer, program string, s lab.Standing) {
	fmt.Fprintf(w, "lab %s is up: %s\n\n", s.ID, s.Scenario)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "host\tsite\tnamespace\tagent (--socket)")
	for _, h := range s.Hosts {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", h.Host, h.Site, h.Namespace, h.Socket)
	}
	fmt.Fprintln(t, "\nguest\ton\taddresses\t")
	for _, g := range s.Guests {
		var addrs []string
		for _, a := range g.Addresses {
			addrs = append(addrs, a.String())
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t\n", g.Guest, g.Host, strings.Join(addrs, " "))
	}
	if len(s.Clients) > 0 {
		fmt.Fprintln(t, "\nclient\tat\tnamespace\t")
	}
	for _, c := range s.Clients {
		fmt.Fprintf(t, "%s\t%s\t%s\t\n", c.Client, c.At, c.Namespace)
	}
	t.Flush() //nolint:errcheck // a terminal that went away must not end a lab
	fmt.Fprintf(w, "\ntry, in another terminal:\n%s\nend it by Ctrl-C, or by `%s lab down %s`\n", strings.Join(tries(program, s), ""), program, s.ID)
}

// tries are commands that work in this lab.
func tries(program string, s lab.Standing) []string {
	var out []string
	for _, g := range s.Guests[:min(len(s.Guests), 1)] {
		for _, h := range s.Hosts {
			if h.Host != g.Host {
				continue
			}
			if to := otherHost(s, g.Host); to != "" {
				out = append(out, fmt.Sprintf("  %s migrate %s %s --watch --socket %s\n", program, g.Guest, to, h.Socket))
			}
			out = append(out, fmt.Sprintf("  %s guest ls --socket %s\n", program, h.Socket))
		}
		if len(s.Clients) > 0 && len(g.Addresses) > 0 {
			out = append(out, fmt.Sprintf("  ip netns exec %s ping %s\n", s.Clients[0].Namespace, g.Addresses[0]))
		}
	}
	return out
}

func otherHost(s lab.Standing, host string) string {
	for _, h := range s.Hosts {
		if h.Host != host {
			return h.Host
		}
	}
	return ""
}

func newLabDown() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use: "down [ID]", Short: "end a lab, or remove what labs left on this machine",
		Long: `Ends the lab with this id (four hex digits), as Ctrl-C would, and removes what it leaves.
Without an id: removes the namespaces, processes and files of labs that run no more, as
after a power cut; those that run are named and left alone, but with --all.`,
		Example: "  godwit lab down\n  godwit lab down 3f9a\n  godwit lab down --all",
		Args:    argsAtMostOne("a lab's id"),
		RunE: func(c *cobra.Command, args []string) error {
			for _, id := range args {
				if !lab.ValidID(id) {
					return usageError{fmt.Errorf("lab down %s: not a lab's id; it has four hex digits, such as 3f9a", id)}
				}
			}
			if all && len(args) > 0 {
				return usageError{errors.New("lab down: either an id or --all, not both")}
			}
			if err := needRoot(); err != nil {
				return err
			}
			done, err := lab.Down(c.Context(), args, all)
			if errors.Is(err, lab.ErrNoLab) {
				return usageError{err}
			}
			if asJSON(c) {
				return errors.Join(err, printJSON(c.OutOrStdout(), done))
			}
			sayRemoval(c.OutOrStdout(), done, err)
			return err
		},
	}
	c.Flags().BoolVar(&all, "all", false, "end the labs that run, too")
	return c
}

func sayRemoval(w io.Writer, done lab.Removal, err error) {
	for _, id := range done.Removed {
		fmt.Fprintln(w, "removed lab", id)
	}
	for _, id := range done.Running {
		fmt.Fprintf(w, "lab %s runs, and is left alone; `godwit lab down %s` ends it\n", id, id)
	}
	if err == nil && len(done.Removed)+len(done.Running) == 0 {
		fmt.Fprintln(w, "no lab is here")
	}
}
