package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// newNotYet are commands that Godwit is to have. They say so, and what there is meanwhile.
func newNotYet() (all []*cobra.Command) {
	for _, c := range []struct{ name, what, instead, example string }{
		{"server", "the fleet's API, planner and page", "each host's agent can be asked by itself: godwit host ls, godwit plan, godwit evacuate", "godwit server"},
		{"paper", "the papers' experiments, run again", "two of them are rows of godwit bench handover: --rows paper,paper-dallas", "godwit paper ls"},
		{"sim", "thousands of sites in virtual time", "godwit lab run has real ones", "godwit sim"},
	} {
		all = append(all, &cobra.Command{
			Use: c.name, Short: c.what + " (not there yet)", Example: "  " + c.example,
			Long: "Not there yet: " + c.what + ".\nMeanwhile: " + c.instead + ".",
			Args: cobra.ArbitraryArgs,
			RunE: func(*cobra.Command, []string) error {
				return usageError{fmt.Errorf("%s is not there yet; %s", c.name, c.instead)}
			},
		})
	}
	return all
}
