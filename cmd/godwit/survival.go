package main

import (
	"fmt"
	"io"

	"godwit/agent/record"
)

// printSurvival prints what became of each connection, a line each.
func printSurvival(w io.Writer, s *record.Survival) {
	if s == nil {
		return
	}
	if s.Unknown != "" {
		fmt.Fprintln(w, s.Unknown)
		if s.Total == 0 { // which says nothing
			return
		}
	}
	fmt.Fprintf(w, "connections: %d, of which %d moved, %d stay on the old address, %d ended by themselves, %d were lost\n", s.Total, s.Moved, s.Tunnelled, s.Ended, s.Lost)
	for _, c := range s.Connections {
		became := string(c.Fate)
		if c.Now != nil {
			became += " to " + c.Now.String()
		}
		if c.Why != "" {
			became += ": " + c.Why
		}
		fmt.Fprintf(w, "  %-5s %-28s %-28s %s\n", c.Kind, c.Local, c.Remote, became)
	}
	if s.Omitted > 0 {
		fmt.Fprintf(w, "  and %d more\n", s.Omitted)
	}
}
