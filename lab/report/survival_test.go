package report

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// shown is a report's page and its summary.
func shown(t *testing.T, r *Report) (page, summary string) {
	t.Helper()
	var p, s bytes.Buffer
	if err := HTML(&p, r); err != nil {
		t.Fatal(err)
	}
	Summary(&s, r, false)
	return p.String(), s.String()
}

// TestListThatIsMissing: a guest whose list of connections is not known had not none.
func TestListThatIsMissing(t *testing.T) {
	silent := Migration{Guest: "web", Outcome: Completed, Survival: &Survival{
		Unknown: "the guest is silent", Total: 1, Tunnelled: 1, Connections: []Survivor{{Kind: "udp", Fate: "tunnelled"}}}}
	told := Migration{Guest: "db", Outcome: Completed, Survival: &Survival{Total: 3, Moved: 3, Connections: []Survivor{{Kind: "mptcp", Fate: "moved"}}}}
	for want, all := range map[string][]Migration{
		"guests' own lists: the guest is silent\n":                                         {silent},
		"guests' own lists: 3 connections, 3 moved\n":                                      {told},
		"guests' own lists: 3 connections, 3 moved; of 1 of 2 none: the guest is silent\n": {silent, told},
	} {
		page, summary := shown(t, &Report{Migrations: all})
		if !strings.Contains(summary, want) {
			t.Errorf("the summary lacks %q:\n%s", want, summary)
		}
		if said := strings.Contains(page, "the guest is silent"); said != strings.Contains(want, "silent") {
			t.Errorf("the page says that the guest is silent: %v", said)
		}
	}
}

// TestNothingIsListed: where nothing was seen of a guest's connections, nothing is said of what is listed, and no table
// without rows is shown.
func TestNothingIsListed(t *testing.T) {
	r := &Report{Migrations: []Migration{{Guest: "web", From: "a", To: "b", Outcome: Completed, Survival: &Survival{Unknown: "the guest is silent"}}}}
	page, _ := shown(t, r)
	if !strings.Contains(page, "the guest is silent</p>") || strings.Contains(page, "what is listed") || strings.Contains(page, "<th>became</th>") {
		t.Errorf("%+v", survivalTable(r))
	}
}

// TestConnectionsNotOnThePage: what the list of connections leaves out is said, and what the lab's clients saw otherwise.
func TestConnectionsNotOnThePage(t *testing.T) {
	s := &Survival{Omitted: 7, Otherwise: []string{"ticks from 198.18.1.10:4: it lived, and the guest's list does not have it"}}
	for range survivalRows + 3 {
		s.Connections = append(s.Connections, Survivor{Kind: "tcp", Fate: "tunnelled"})
	}
	r := &Report{Migrations: []Migration{{Guest: "web", From: "a", To: "b", Outcome: Completed, Survival: s}}}
	for i := range mostRemarks + 2 {
		r.Migrations[0].Notes = append(r.Migrations[0].Notes, fmt.Sprint("note ", i))
	}
	page, _ := shown(t, r)
	for _, want := range []string{"3 more in report.json", "7 more, which its guest or its agent did not list", "it lived, and the guest&#39;s list does not have it", "and 2 more in report.json"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}
