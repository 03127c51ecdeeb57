package traffic

import (
	"testing"
	"time"
)

// TestLook: a silent flow and one of many connections tell where each of theirs is when they are asked, and not only
// when their turn comes; the sample is there when the question is answered. One whose samples tell that tells none, nor
// one that does not run.
func TestLook(t *testing.T) {
	name, _ := guest(t)
	c := client(t, name)
	const many = 3 * lookedAt
	begin(t, c, Flow{Name: "silent", Kind: Ticks, MPTCP: true, Every: time.Hour, Silent: true})
	begin(t, c, Flow{Name: "many", Kind: Requests, MPTCP: true, Every: time.Hour, Connections: many, Silent: true})
	begin(t, c, Flow{Name: "few", Kind: Requests, MPTCP: true, Every: time.Hour})
	waitFor(t, c, "its sample", func(s Sample) bool { return s.Flow == "few" })
	for flow, want := range map[string]int{"silent": 1, "many": many, "few": 0, "none": 0} {
		for {
			select {
			case <-c.Samples():
				continue
			default:
			}
			break
		}
		asked := now()
		if err := c.Look(flow); err != nil {
			t.Fatal(err)
		}
		got := 0
		for {
			select {
			case s := <-c.Samples():
				if s.Flow == flow && s.Time >= asked && (want > 0 || len(s.Remotes) == 0) {
					got = s.Remotes[loopback]
				}
				continue
			default:
			}
			break
		}
		if got != want {
			t.Errorf("%s: %d connections are known to be at %v, want %d", flow, got, loopback, want)
		}
	}
}
