package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"godwit/agent/api"
	"godwit/agent/record"
	"godwit/internal/lists"
	"godwit/migration"
)

// completeTime bounds how long a shell waits for what an agent could complete.
var completeTime = time.Second

// kind of thing that an argument names, as its agent knows them.
type kind func(context.Context, *api.Client) ([]string, error)

func guestNames(ctx context.Context, client *api.Client) ([]string, error) {
	var out []string
	info, err := client.Host(ctx)
	for _, g := range info.Guests {
		out = append(out, g.Name)
	}
	return out, err
}

// endedNames are the guests that have ended on the agent's host, of which it knows what they were.
func endedNames(ctx context.Context, client *api.Client) ([]string, error) {
	all, err := client.Ended(ctx)
	var out []string
	for _, e := range all {
		out = append(out, e.Description.Name+"\tended: "+e.Why)
	}
	return out, err
}

// heldNames are the guests under care, and those that have ended.
func heldNames(ctx context.Context, client *api.Client) ([]string, error) {
	out, err := guestNames(ctx, client)
	ended, _ := endedNames(ctx, client) // an agent of an older release knows of none
	return append(out, ended...), err
}

// awayNames are the guests that are not here, and for which the host has a tunnel.
func awayNames(ctx context.Context, client *api.Client) ([]string, error) {
	here, err := guestNames(ctx, client)
	if err != nil {
		return nil, err
	}
	all, err := client.Tunnels(ctx)
	var out []string
	for _, use := range all {
		out = append(out, use.Guest)
	}
	return lists.Without(out, here), err
}

// places are the sites and hosts that a guest may go to.
func places(ctx context.Context, client *api.Client) ([]string, error) {
	info, err := client.Host(ctx)
	var out []string
	for _, n := range info.Neighbours {
		out = append(out, n.Host, n.Site)
	}
	return out, err
}

func ownHost(ctx context.Context, client *api.Client) ([]string, error) {
	info, err := client.Host(ctx)
	return []string{info.Host}, err
}

func migrationIDs(ctx context.Context, client *api.Client) ([]string, error) {
	all, err := client.Reports(ctx)
	return idsOf(all), err
}

// runningIDs are those that have no outcome yet.
func runningIDs(ctx context.Context, client *api.Client) ([]string, error) {
	all, err := client.Reports(ctx)
	over := func(r record.Report) bool { return r.Outcome != "" && r.Outcome != migration.InDoubt }
	return idsOf(slices.DeleteFunc(all, over)), err
}

func idsOf(all []record.Report) (out []string) {
	for _, r := range all {
		out = append(out, r.ID+"\t"+r.Guest+" → "+r.To)
	}
	return out
}

// doubtful are the migrations that a person may have to decide about, and their guests.
func doubtful(ctx context.Context, client *api.Client) ([]string, error) {
	all, err := client.Doubts(ctx, "")
	var out []string
	for _, d := range all {
		out = append(out, d.ID+"\t"+d.Here)
		if d.Guest != "" {
			out = append(out, d.Guest)
		}
	}
	return out, err
}

// completes lets a shell complete a command's arguments, each by what its kind is.
func completes(c *cobra.Command, kinds ...kind) *cobra.Command {
	c.ValidArgsFunction = func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= len(kinds) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return asked(c, kinds[len(args)]), cobra.ShellCompDirectiveNoFileComp
	}
	return c
}

// completesAs is completes where a flag says of what kind a command's one argument is; without it, nil is a file.
func completesAs(c *cobra.Command, flag *bool, with, without kind) {
	c.ValidArgsFunction = func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		of := without
		if *flag {
			of = with
		}
		switch {
		case len(args) > 0:
			return nil, cobra.ShellCompDirectiveNoFileComp
		case of == nil:
			return nil, cobra.ShellCompDirectiveDefault
		}
		return asked(c, of), cobra.ShellCompDirectiveNoFileComp
	}
}

// completesFlag is completes for the value of a flag.
func completesFlag(c *cobra.Command, flag string, of kind) {
	complete := func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return asked(c, of), cobra.ShellCompDirectiveNoFileComp
	}
	if err := c.RegisterFlagCompletionFunc(flag, complete); err != nil {
		panic(err) // the command has no such flag
	}
}

// commandNames are the commands that may follow those which were typed.
func commandNames(c *cobra.Command, args []string, _ string) (out []string, _ cobra.ShellCompDirective) {
	about, rest, err := c.Root().Find(args)
	if err != nil || len(rest) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	for _, sub := range about.Commands() {
		if sub.IsAvailableCommand() {
			out = append(out, sub.Name()+"\t"+sub.Short)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// filesAlone keeps a shell from offering files to commands that take none. How a command is used
// says whether it does.
func filesAlone(c *cobra.Command) {
	for _, sub := range c.Commands() {
		filesAlone(sub)
	}
	if c.ValidArgsFunction == nil && c.ValidArgs == nil && !strings.Contains(c.Use, "FILE") && !strings.Contains(c.Use, "SOCKET") {
		c.ValidArgsFunction = cobra.NoFileCompletions
	}
}

// oneOf completes the value of a flag that has few.
func oneOf(c *cobra.Command, flag string, values []string) {
	if err := c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the command has no such flag
	}
}

// allKnown refuses a value of a flag that is none of those known.
func allKnown(flag string, values, known []string) error {
	for _, v := range values {
		if !slices.Contains(known, v) {
			return usageError{fmt.Errorf("--%s %s: unknown; allowed: %s", flag, v, strings.Join(known, ", "))}
		}
	}
	return nil
}

// asked is what the agent knows; nothing where none answers in time.
func asked(c *cobra.Command, of kind) []string {
	client, err := ask(c)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), completeTime)
	defer cancel()
	all, err := of(ctx, client)
	if err != nil {
		return nil
	}
	slices.Sort(all) // a host may be called as its site is
	return slices.Compact(all)
}
