package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"godwit/agent/api"
	"godwit/internal/oneline"
)

func newSite() *cobra.Command {
	c := askFlags(&cobra.Command{Use: "site", Short: "sites of the fleet, as this host knows them", Example: "  godwit site ls"})
	c.AddCommand(&cobra.Command{
		Use: "ls", Short: "list them", Example: "  godwit site ls --json", Args: argsExactly(0, "no arguments"), RunE: onHost(listSites),
	}, completes(&cobra.Command{
		Use: "show SITE", Short: "show one's hosts", Example: "  godwit site show sanjose", Args: argsExactly(1, "a site's name"),
		RunE: onFleet(showSite),
	}, siteNames))
	return c
}

// listedSite is a site as this host knows it.
type listedSite struct {
	Site   string   `json:"site"`
	Hosts  []string `json:"hosts"`
	Guests *int     `json:"guests"` // those on this host; null: of another site, of whose guests nothing is known here
}

func listSites(c *cobra.Command, info api.HostInfo, _ []string) error {
	sites := sitesOf(info)
	if asJSON(c) {
		return printJSON(c.OutOrStdout(), sites)
	}
	for _, s := range sites {
		guests := ""
		if s.Guests != nil {
			guests = oneline.Many(*s.Guests, "guest") + " on " + info.Host
		}
		fmt.Fprintf(c.OutOrStdout(), "%-16s %-32s %s\n", s.Site, strings.Join(s.Hosts, " "), guests)
	}
	return nil
}

// sitesOf are the sites that a host knows, its own first.
func sitesOf(info api.HostInfo) []listedSite {
	guests := len(info.Guests)
	sites := []listedSite{{Site: info.Site, Guests: &guests}}
	for _, h := range shownHosts(info) {
		i := slices.IndexFunc(sites, func(s listedSite) bool { return s.Site == h.Site })
		if i < 0 {
			i, sites = len(sites), append(sites, listedSite{Site: h.Site})
		}
		sites[i].Hosts = append(sites[i].Hosts, h.Host)
	}
	return sites
}

func showSite(c *cobra.Command, info api.HostInfo, args []string) error {
	site := args[0]
	hosts := hostsOf(info, site)
	if len(hosts) == 0 {
		return unknownPlace("site %s: unknown to host %s; see `godwit site ls`", site, info.Host)
	}
	if asJSON(c) {
		return printJSON(c.OutOrStdout(), map[string]any{"site": site, "hosts": hosts})
	}
	for _, h := range hosts {
		fmt.Fprintf(c.OutOrStdout(), "%-16s %s\n", h.Host, h.State)
	}
	return nil
}

func hostsOf(info api.HostInfo, site string) []shownHost {
	return slices.DeleteFunc(shownHosts(info), func(h shownHost) bool { return h.Site != site })
}

func siteNames(ctx context.Context, client *api.Client) ([]string, error) {
	info, err := client.Host(ctx)
	var out []string
	for _, s := range sitesOf(info) {
		out = append(out, s.Site)
	}
	return out, err
}
