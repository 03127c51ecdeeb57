package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"godwit/agent/api"
	"godwit/agent/care"
	"godwit/agent/describe"
	"godwit/migration"
)

// listAll is listGuests; those that have ended here follow, for people.
func listAll(c *cobra.Command, client *api.Client, _ []string) error {
	info, err := client.Host(c.Context())
	if err == nil {
		err = listGuests(c, info, nil)
	}
	if err != nil || asJSON(c) {
		return err
	}
	ended, err := client.Ended(c.Context())
	if err != nil { // as an agent of an older release
		fmt.Fprintf(c.ErrOrStderr(), "which guests have ended here is not known: %v\n", err)
	}
	for _, e := range ended {
		elsewhere := e.Elsewhere()
		if elsewhere != "" {
			elsewhere = ", and " + elsewhere
		}
		fmt.Fprintf(c.OutOrStdout(), "%-16s ended %s (%s)%s; no agent starts it again, see `godwit guest describe --ended %s`\n",
			e.Description.Name, e.At.Local().Format(time.DateTime), e.Why, elsewhere, e.Description.Name)
	}
	return nil
}

// ofEnded is what a guest was that has ended on this host, as its agent knows.
func ofEnded(c *cobra.Command, guest string) (describe.Found, error) {
	client, err := ask(c)
	if err != nil {
		return describe.Found{}, err
	}
	info, err := client.Host(c.Context())
	if err != nil {
		return describe.Found{}, err
	}
	ended, err := client.Ended(c.Context())
	if err != nil {
		return describe.Found{}, err
	}
	for _, e := range ended {
		if e.Description.Name == guest {
			return whatWas(e, info.Host), nil
		}
	}
	return describe.Found{}, &migration.Problem{Code: migration.CodeUnknownGuest, Text: fmt.Sprintf("guest %s: none of that name has ended on host %s; see `godwit guest ls`", guest, info.Host)}
}

func unknownGuest(err error) bool {
	var problem *migration.Problem
	return errors.As(err, &problem) && problem.Code == migration.CodeUnknownGuest
}

// whatWas is the description of a guest that has ended on a host, as a person takes it to start it and adopt it.
func whatWas(e care.Ended, host string) describe.Found {
	d := e.Description
	has := "no address"
	if len(e.Addresses) > 0 {
		var all []string
		for _, addr := range e.Addresses {
			all = append(all, fmt.Sprintf("%s (at home on %s)", addr.Prefix, addr.Home))
		}
		has = strings.Join(all, ", ")
	}
	look := []string{
		fmt.Sprintf("guest %s ended on host %s at %s (%s), and no agent starts it again; it had %s", d.Name, host, e.At.Local().Format(time.DateTime), e.Why, has),
		"make sure that it runs nowhere else, and that no newer disks of it are on another host (`godwit history`), before you start it",
	}
	if elsewhere := e.Elsewhere(); elsewhere != "" {
		look = append(look, elsewhere+": see what `godwit guest ls` and `godwit recover` say on its source before you start it here; where the source is off, keep it off")
	}
	if d.QMP == "" { // it came here
		look = append(look, "an agent ran it here by `start`; without -S and -incoming defer that boots it. Its words in braces are yours to fill in as you type it, not in this file; qmp and taps, and channel or addresses, are in this file")
		d.QMP, d.Addresses = "QMP-SOCKET", nil
		if slices.ContainsFunc(d.Start, func(word string) bool { return strings.Contains(word, "{channel}") }) {
			d.Channel = "CHANNEL-SOCKET"
		}
		d.NICs = slices.Clone(d.NICs)
		for i := range d.NICs {
			d.NICs[i].Tap = fmt.Sprintf("TAP%d", i)
		}
	}
	look = append(look, "once it runs: `godwit guest adopt FILE` of this; or of what `godwit guest describe QMP-SOCKET` says then, as where libvirt gave it other taps")
	return describe.Found{Description: d, Look: look}
}

// dropEnded forgets what is kept of a guest that is not under care, as it has ended; else it says what was said of it.
func dropEnded(ctx context.Context, client *api.Client, guest string, said error) (dropped bool, err error) {
	if !unknownGuest(said) || client.DropEnded(ctx, guest) != nil {
		return false, said
	}
	return true, nil
}
