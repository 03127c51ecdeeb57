package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"godwit/agent/api"
	"godwit/agent/record"
	"godwit/internal/oneline"
	"godwit/migration"
)

func newWatch() *cobra.Command {
	return completes(askFlags(&cobra.Command{
		Use: "watch [ID]", Short: "show what happens in a migration, by default the newest",
		Example: "  godwit watch\n  godwit watch m-3f9a2c1b --json", Args: argsAtMostOne("a migration's id"),
		RunE: onAgent(func(c *cobra.Command, client *api.Client, args []string) error {
			if len(args) == 1 {
				return follow(c, client, args[0])
			}
			all, err := client.Reports(c.Context())
			if err != nil {
				return err
			}
			if len(all) == 0 {
				return fmt.Errorf("watch: this host has had no migration; begin one with `godwit migrate GUEST SITE`")
			}
			return follow(c, client, all[0].ID)
		}),
	}), migrationIDs)
}

const (
	// agentPatience is how long an agent may not answer, as one that is started again.
	agentPatience = 30 * time.Second
	// askAgain is between questions to it.
	askAgain = 200 * time.Millisecond
)

// follow prints a migration's events until its outcome. Any outcome but completed
// is a failure.
func follow(c *cobra.Command, client *api.Client, id string) error {
	var phase migration.Phase
	var born int64
	heard := time.Now()
	for after := 0; ; {
		part, err := client.Events(c.Context(), id, after)
		var said *migration.Problem
		switch {
		case c.Context().Err() != nil:
			return fmt.Errorf("interrupted; migration %s goes on: `godwit watch %s` shows it, `godwit abort %s` calls it off", id, id, id)
		case errors.As(err, &said) && said.Code != migration.CodePeer: // which is that nobody answers
			return err
		case err != nil && born == 0:
			return err
		case err != nil && time.Since(heard) > agentPatience:
			return fmt.Errorf("%w; migration %s goes on when its agent does: `godwit watch %s` shows it", err, id, id)
		case err != nil: // the agent may be started again
			time.Sleep(askAgain)
			continue
		case part.Born != born && born != 0:
			after, born = 0, part.Born // of the next agent, which counts anew
			continue
		}
		heard, born = time.Now(), part.Born
		for _, e := range part.Events {
			after = e.N
			phase = cmp.Or(e.Phase, phase)
			if err := printEvent(c, e, phase); err != nil {
				return err
			}
		}
		if part.Over {
			return outcome(c, client, id, after == 0)
		}
	}
}

// outcome ends what follow prints, for programs with the whole report; untold says that nobody knows the events any more.
func outcome(c *cobra.Command, client *api.Client, id string, untold bool) error {
	rep, err := client.Report(c.Context(), id)
	if err != nil {
		return err
	}
	switch w := c.OutOrStdout(); {
	case asJSON(c):
		if err := printLine(c, map[string]record.Report{"report": rep}); err != nil {
			return err
		}
	case untold:
		fmt.Fprintln(w, historyLine(rep))
		fallthrough
	default:
		printSurvival(w, rep.Survival)
	}
	if rep.Outcome == migration.Completed {
		return nil
	}
	return errSaid
}

// printEvent prints an event of a migration that is in that phase; "": not known.
func printEvent(c *cobra.Command, e record.Event, phase migration.Phase) error {
	if asJSON(c) {
		return printLine(c, e)
	}
	_, err := fmt.Fprintf(c.OutOrStdout(), "%s  %-12s %s\n", time.Unix(0, e.At).Format("15:04:05.000"), e.Host, eventText(e, phase))
	return err
}

// eventText is what a person reads of an event.
func eventText(e record.Event, phase migration.Phase) string {
	switch e.Kind {
	case "phase":
		return "phase " + string(e.Phase)
	case "event":
		return string(e.Name)
	case "progress":
		var p record.CopyProgress
		line := string(e.Data)
		if json.Unmarshal(e.Data, &p) == nil && p.What != "" { // else of a later release, perhaps
			line = p.Line()
			if phase != "" {
				line = string(phase) + ": " + line
			}
		}
		return oneline.Of(line) // another host may have counted it
	}
	return e.Text
}
