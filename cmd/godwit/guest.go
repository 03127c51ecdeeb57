package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"godwit/agent/api"
	"godwit/agent/config"
	"godwit/migration"
)

func newGuest() *cobra.Command {
	c := askFlags(&cobra.Command{Use: "guest", Short: "guests under care of this host", Example: "  godwit guest ls\n  godwit guest adopt web.yaml"})
	c.AddCommand(
		&cobra.Command{
			Use: "ls", Short: "list them", Example: "  godwit guest ls --json", Args: argsExactly(0, "no arguments"),
			RunE: onAgent(listAll),
		},
		completes(&cobra.Command{
			Use: "show GUEST", Short: "show one", Example: "  godwit guest show web", Args: argsExactly(1, "a guest's name"),
			RunE: onHost(listGuests),
		}, guestNames),
		newDescribe(),
		&cobra.Command{
			Use: "adopt FILE", Short: "take a guest that runs already under care, by its description",
			Example: "  godwit guest adopt web.yaml", Args: argsExactly(1, "a description file"), RunE: adopt,
		},
		newForget(),
	)
	return c
}

func adopt(c *cobra.Command, args []string) error {
	d, err := config.LoadDescription(args[0])
	if err != nil {
		return usageError{err}
	}
	if d.QMP == "" {
		return usageError{fmt.Errorf("read description: %s: qmp is missing; name the QMP socket of the running guest", args[0])}
	}
	client, err := ask(c)
	if err != nil {
		return err
	}
	held, err := client.StartGuest(c.Context(), d)
	if err != nil {
		return err
	}
	if asJSON(c) {
		return printJSON(c.OutOrStdout(), held)
	}
	_, err = fmt.Fprintln(c.OutOrStdout(), "under care:", d.Name)
	return err
}

func newForget() *cobra.Command {
	c := &cobra.Command{
		Use: "forget GUEST", Short: "end the care of a guest that was adopted here; it runs on",
		Long: "End the care of a guest that was adopted here; it runs on. Of one that has ended here: forget what it was; its disks stay.\n" +
			"With --away: end what this host leads after a guest that left it, where the host that\n" +
			"has it is gone for good: its addresses are free again. It is refused where that host answers, and has the guest.",
		Example: "  godwit guest forget web\n  godwit guest forget web --away    # the host that it went to has burned down",
		Args:    argsExactly(1, "a guest's name"),
	}
	away := c.Flags().Bool("away", false, "of a guest that left this host and runs nowhere any more: end what leads its addresses there")
	completesAs(c, away, awayNames, heldNames)
	c.RunE = onAgent(func(c *cobra.Command, client *api.Client, args []string) error {
		if *away {
			return forgetAway(c, client, args[0])
		}
		return forget(c, client, args)
	})
	return c
}

func forgetAway(c *cobra.Command, client *api.Client, guest string) error {
	gone, err := client.ForgetAway(c.Context(), guest)
	if err != nil {
		return err
	}
	if asJSON(c) {
		return printJSON(c.OutOrStdout(), gone)
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "no longer led anywhere: %v of guest %s\n", gone.Addresses, gone.Guest)
	return err
}

func forget(c *cobra.Command, client *api.Client, args []string) error {
	err := client.ForgetGuest(c.Context(), args[0])
	ended, err := dropEnded(c.Context(), client, args[0], err)
	switch {
	case err != nil:
		return err
	case asJSON(c):
		return printJSON(c.OutOrStdout(), map[string]string{"guest": args[0]})
	case ended:
		_, err = fmt.Fprintln(c.OutOrStdout(), "forgotten, but for its disks, as it had ended:", args[0])
		return err
	}
	_, err = fmt.Fprintln(c.OutOrStdout(), "no longer under care, and running:", args[0])
	return err
}

// listGuests shows all of them, or the one that is named.
func listGuests(c *cobra.Command, info api.HostInfo, args []string) error {
	name := strings.Join(args, "")
	shown := []api.GuestInfo{}
	for _, g := range info.Guests {
		if name == "" || g.Name == name {
			shown = append(shown, g)
		}
	}
	if name != "" && len(shown) == 0 {
		return &migration.Problem{Code: migration.CodeUnknownGuest, Text: fmt.Sprintf("guest %s: not under care on host %s; see `godwit guest ls`, or `godwit history` for where it went", name, info.Host)}
	}
	if asJSON(c) && name != "" {
		return printJSON(c.OutOrStdout(), shown[0])
	}
	if asJSON(c) {
		return printJSON(c.OutOrStdout(), shown)
	}
	for _, g := range shown {
		var addrs []string
		for _, a := range g.Addresses {
			addrs = append(addrs, a.Prefix.Addr().String())
		}
		fmt.Fprintf(c.OutOrStdout(), "%-16s %-10s %5d MiB  %s  %s\n", g.Name, g.Status, g.Memory>>20, strings.Join(addrs, " "), g.Migration)
		if g.Booted != "" {
			fmt.Fprintf(c.OutOrStdout(), "  %s\n", g.Booted)
		}
		if name != "" {
			printTunnels(c.OutOrStdout(), g.Tunnels)
			printFlows(c.OutOrStdout(), g.Flows)
		}
	}
	return nil
}
