package agent

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"godwit/agent/config"
	"godwit/agent/guests"
	"godwit/agent/limits"
	"godwit/agent/record"
	"godwit/agent/sample"
	"godwit/agent/talk"
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
				work: &destinationWork{preparation: talk.Preparation{Plan: plan, Description: config.Description{Disks: []vm.Disk{{ID: "a"}}}, Facts: vm.Facts{Disks: []vm.Disk{{ID: "a", Size: 1 << 20}}}}}}
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

// TestHungVisitsHoldUpNobody: a host whose storage of kept memory does not answer looks after its guests' tunnels all
// the same, and tells a source that it has none of a guest's pages.
func TestHungVisitsHoldUpNobody(t *testing.T) {
	before := limits.Has
	limits.Has.For = 20 * time.Millisecond
	defer func() { limits.Has = before }()
	c := &config.Config{KeepMemory: 1 << 30}
	a := visitsHost(t, c)
	a.guests = guests.In(t.TempDir())
	var under looks
	for name, ask := range map[string]func(){
		"a look at the host": func() { a.lookAtHost(t.Context(), &under) },
		"a check": func() {
			if has := <-a.beginHas(t.Context(), talk.Offer{Plan: migration.Plan{Guest: "web"}, Sample: &sample.Pages{Pages: []uint64{7}, Hashes: []uint64{8}}}); has != nil {
				t.Errorf("it has %v", has)
			}
		},
	} {
		hung := c.StatePath("visits", "web.mem")
		if err := errors.Join(os.MkdirAll(filepath.Dir(hung), 0o700), unix.Mkfifo(hung, 0o600)); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() { defer close(done); ask() }()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			t.Errorf("%s waits for it", name)
		}
		w, err := os.OpenFile(hung, os.O_WRONLY, 0) // as it answers
		if err = errors.Join(err, w.Close()); err != nil {
			t.Error(err)
		}
		<-done
		under.all.Wait()
		if err := os.Remove(hung); err != nil && !errors.Is(err, os.ErrNotExist) { // it may have been taken for one whose time is up
			t.Fatal(err)
		}
	}
}
