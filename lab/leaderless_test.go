package lab

import (
	"testing"
	"time"

	"godwit/lab/report"
	"godwit/lab/scenario"
	"godwit/vm"
)

// TestLeaderless: a migration that nobody leads any more is what both sides show for a while.
func TestLeaderless(t *testing.T) {
	type look struct {
		source       vm.Status
		there, heard bool
	}
	stays, stopped, dead := look{vm.Running, false, true}, look{vm.Paused, false, true}, look{"", false, true}
	for name, c := range map[string]struct {
		looks []look // one a second; the last goes on
		want  report.Outcome
		after int // looks
	}{
		"it runs on":                       {[]look{stays}, report.Aborted, 5},
		"it runs on, and nobody there":     {[]look{{vm.Running, false, false}}, report.Aborted, 5},
		"it stands still":                  {[]look{stopped}, report.InDoubt, 5},
		"it stands still, nobody there":    {[]look{{vm.Paused, false, false}}, "", 0},
		"its QEMU is gone":                 {[]look{dead}, report.Failed, 5},
		"it came there":                    {[]look{{vm.Paused, true, true}}, "", 0},
		"it came there, gone here":         {[]look{stopped, stopped, stopped, {"", true, true}}, "", 0},
		"it was stopped, and went on":      {[]look{stopped, stopped, stays}, report.Aborted, 7},
		"it ran, stood still, and is gone": {[]look{stays, stopped, stopped, dead}, report.Failed, 8},
	} {
		var l leaderless
		at := time.Unix(1000, 0)
		got, after := report.Outcome(""), 0
		for i := 0; i < 20 && got == ""; i++ {
			see := c.looks[min(i, len(c.looks)-1)]
			var why string
			if got, why = l.see(at.Add(time.Duration(i)*time.Second), see.source, see.there, see.heard); got != "" {
				if after = i; why == "" {
					t.Errorf("%s: it does not say why", name)
				}
			}
		}
		if got != c.want || after != c.after {
			t.Errorf("%s: %q after %d looks, not %q after %d", name, got, after, c.want, c.after)
		}
	}
}

// TestStartsAgain: an agent that a step to come starts is not gone for good.
func TestStartsAgain(t *testing.T) {
	for name, c := range map[string]struct {
		step  scenario.Step
		begun bool
		want  bool
	}{
		"later":                       {scenario.Step{Kill: &scenario.Kill{Agent: "a", Restart: true}}, false, true},
		"it was":                      {scenario.Step{Kill: &scenario.Kill{Agent: "a", Restart: true}}, true, false},
		"another":                     {scenario.Step{Kill: &scenario.Kill{Agent: "b", Restart: true}}, false, false},
		"nobody starts it":            {scenario.Step{Kill: &scenario.Kill{Agent: "a"}}, false, false},
		"in a phase of another guest": {scenario.Step{At: scenario.At{Guest: "db"}, Kill: &scenario.Kill{Agent: "a", Restart: true}}, false, true},
		"in a phase that cannot come": {scenario.Step{At: scenario.At{Guest: "web"}, Kill: &scenario.Kill{Agent: "a", Restart: true}}, false, false},
	} {
		r := aRun(c.step)
		if c.begun {
			r.steps = []stepDone{{step: &r.w.scenario.Steps[0]}}
		}
		if got := r.startsAgain("a", "web"); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
