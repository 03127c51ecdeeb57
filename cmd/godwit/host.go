package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"godwit/agent/api"
	"godwit/internal/oneline"
	"godwit/migration"
)

func newHost() *cobra.Command {
	c := askFlags(&cobra.Command{Use: "host", Short: "hosts of the fleet, as this one knows them", Example: "  godwit host ls\n  godwit host show sanjose-1"})
	c.AddCommand(&cobra.Command{
		Use: "ls", Short: "list them", Example: "  godwit host ls --json", Args: argsExactly(0, "no arguments"), RunE: onFleet(listHosts),
	}, completes(&cobra.Command{
		Use: "show [HOST]", Short: "show one, by default this; of this also what uses its tunnels, guest by guest and flow by flow",
		Example: "  godwit host show --json\n  godwit host show sanjose-1", Args: argsAtMostOne("a host's name"), RunE: onAgent(showHost),
	}, hostNames))
	return c
}

// shownHost is a host as this one knows it. What another has, only its own agent says.
type shownHost struct {
	Host    string          `json:"host"`
	Site    string          `json:"site"`
	State   string          `json:"state"`
	Up      *bool           `json:"up,omitempty"` // its agent answers
	Count   *int            `json:"guest_count,omitempty"`
	Free    *int64          `json:"free,omitempty"`    // bytes of memory for guests
	Guests  []api.GuestInfo `json:"guests,omitempty"`  // of this host
	Tunnels []api.TunnelUse `json:"tunnels,omitempty"` // of this host
}

func showHost(c *cobra.Command, client *api.Client, args []string) error {
	info, err := fleet(c.Context(), client)
	if err != nil {
		return err
	}
	all := shownHosts(info)
	i := 0
	if len(args) > 0 {
		i = slices.IndexFunc(all, func(h shownHost) bool { return h.Host == args[0] })
	}
	if i < 0 {
		return unknownPlace("host %s: unknown to host %s; see `godwit host ls`", args[0], info.Host)
	}
	h := all[i]
	if i == 0 {
		h.Guests = info.Guests
		if h.Tunnels, err = client.Tunnels(c.Context()); err != nil {
			return err
		}
	}
	if asJSON(c) {
		return printJSON(c.OutOrStdout(), h)
	}
	fmt.Fprintf(c.OutOrStdout(), "%-16s %-16s %s\n", h.Host, h.Site, h.State)
	if i == 0 {
		printUses(c.OutOrStdout(), h.Tunnels)
	}
	return nil
}

// unknownPlace is an error of who names a site or host that there is not.
func unknownPlace(format string, args ...any) error {
	return &migration.Problem{Code: migration.CodeUnknownSite, Text: fmt.Sprintf(format, args...)}
}

// shownHosts are those that this one knows, itself first, each by its names and state alone.
func shownHosts(info api.HostInfo) []shownHost {
	up, guests := true, len(info.Guests)
	all := []shownHost{{Host: info.Host, Site: info.Site, State: "this host, " + oneline.Many(guests, "guest"), Up: &up, Count: &guests}}
	for _, n := range info.Neighbours {
		all = append(all, shownHost{Host: n.Host, Site: n.Site, State: n.State, Up: n.Up, Count: n.Guests, Free: n.Free})
	}
	return all
}

// fleet is this host, and what the others that it knows say of themselves.
func fleet(ctx context.Context, client *api.Client) (api.HostInfo, error) {
	info, err := client.Host(ctx)
	if err == nil {
		info.Neighbours, err = client.Neighbours(ctx)
	}
	return info, err
}

// onFleet is onHost with what the others say.
func onFleet(body func(c *cobra.Command, info api.HostInfo, args []string) error) func(*cobra.Command, []string) error {
	return onAgent(func(c *cobra.Command, client *api.Client, args []string) error {
		info, err := fleet(c.Context(), client)
		if err != nil {
			return err
		}
		return body(c, info, args)
	})
}

func listHosts(c *cobra.Command, info api.HostInfo, _ []string) error {
	if asJSON(c) {
		return printJSON(c.OutOrStdout(), shownHosts(info))
	}
	for _, h := range shownHosts(info) {
		fmt.Fprintf(c.OutOrStdout(), "%-16s %-16s %s\n", h.Host, h.Site, h.State)
	}
	return nil
}

func hostNames(ctx context.Context, client *api.Client) ([]string, error) {
	info, err := client.Host(ctx)
	var out []string
	for _, h := range shownHosts(info) {
		out = append(out, h.Host)
	}
	return out, err
}
