package agent

import (
	"io/fs"
	"math"
	"os"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/agent/record"
	"godwit/migration"
	"godwit/vm"
)

// TestHungStorageHoldsUpNobody: while storage does not answer who asks for a disk, a journal or the history, others are told
// which migrations there are: a release that waited for that would make its guest stand still.
func TestHungStorageHoldsUpNobody(t *testing.T) {
	p := goodPreparation()
	for name, ask := range map[string]func(*Agent){
		"a disk on its way": func(a *Agent) { a.owed(math.MaxUint64) },
		"a journal":         func(a *Agent) { a.underWay("m-00000009") },
		"the history":       func(a *Agent) { a.admitIncoming(p) }, //nolint:errcheck // that is not the test's
	} {
		t.Run(name, func(t *testing.T) {
			a := between(t)
			plan := migration.Plan{ID: "m-00000002", Guest: "db", Epoch: 2, From: "paris"}
			a.incoming[plan.ID] = &incoming{a: a, plan: plan, rec: record.New("rome", plan, time.Now()), state: migration.Destination{Landing: migration.Waiting},
				work: &destinationWork{preparation: Preparation{Plan: plan, Description: config.Description{Disks: []vm.Disk{{ID: "a"}}}, Facts: vm.Facts{Disks: []vm.Disk{{ID: "a", Size: 1 << 20}}}}}}
			asked, answers := make(chan struct{}), make(chan struct{})
			stat, read := statFile, pastOf
			hang := func() { close(asked); <-answers }
			statFile = func(path string) (fs.FileInfo, error) { hang(); return os.Stat(path) }
			pastOf = func(s *record.Store, id string) past { hang(); return read(s, id) }
			done := make(chan struct{})
			defer func() { close(answers); <-done; statFile, pastOf = stat, read }()
			go func() { defer close(done); ask(a) }()
			<-asked
			found := make(chan error, 1)
			go func() {
				_, err := a.findIncoming(callFrom(t, "paris", plan.ID, nil))
				found <- err
			}()
			select {
			case err := <-found:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(10 * time.Second):
				t.Error("it is waited for")
			}
		})
	}
}
