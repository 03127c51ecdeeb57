package lab

import (
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"godwit/agent/record"
	"godwit/internal/need"
	"godwit/lab/scenario"
	"godwit/lab/traffic"
	"godwit/lab/traffic/serve"
	"godwit/migration"
	"godwit/netstate/netns"
)

// TestSilentFlowIsLookedAtAfterAMove: where a silent flow's connections are is known as its guest's move is over, and
// not up to 10 s later, when the guest may have moved on: they counted as tunnelled then. Nobody asks after one that
// did not get there.
func TestSilentFlowIsLookedAtAfterAMove(t *testing.T) {
	need.Root(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	namespace := "t-look-" + newID()
	must(netns.Create(namespace))
	t.Cleanup(func() { netns.Delete(namespace) }) //nolint:errcheck // of a test
	must(netns.Do(namespace, func() error {
		lo, err := netlink.LinkByName("lo")
		if err == nil {
			err = netlink.LinkSetUp(lo)
		}
		if err == nil {
			err = serve.Start(t.Context())
		}
		return err
	}))
	phone, err := traffic.StartClient(t.Context(), namespace)
	must(err)
	defer phone.Close()
	there := netip.MustParseAddr("127.0.0.1")
	must(phone.Start(traffic.Flow{Name: "words", Kind: traffic.Ticks, Target: there, MPTCP: true, Every: time.Hour, Connections: 1, Silent: true}))
	r, f := aRun(), &flowTrace{subflows: map[[2]string][]span{}}
	r.w.scenario.Traffic = []scenario.Traffic{{Name: "words", Client: "phone", Guest: "web", Kind: traffic.Ticks, Silent: true}}
	r.w.clients, r.flows = map[string]*traffic.Client{"phone": phone}, map[string]*flowTrace{"words": f}
	r.watchSamples()
	seen := func(after int64) bool {
		for patience := need.Patient(4 * time.Second); !patience.Over(); time.Sleep(5 * time.Millisecond) {
			if f.mu.Lock(); f.last.Time > after && f.last.Remotes[there] == 1 {
				f.mu.Unlock()
				return true
			}
			f.mu.Unlock()
		}
		return false
	}
	if !seen(0) {
		t.Fatal("it tells no sample as it begins")
	}
	over := time.Now().UnixNano()
	r.lookAfter(&move{guest: "web", report: &record.Report{Outcome: migration.Aborted}})
	r.lookAfter(&move{guest: "db", report: &record.Report{Outcome: migration.Completed}})
	f.mu.Lock()
	early := f.last.Time > over
	f.mu.Unlock()
	r.lookAfter(&move{guest: "web", report: &record.Report{Outcome: migration.Completed}})
	if !seen(over) || early {
		t.Errorf("looked at before: %v; where its connection is when the move is over is not known", early)
	}
}
