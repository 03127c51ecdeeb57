package agent

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/agent/record"
	"godwit/agent/statefile"
	"godwit/agent/talk"
	"godwit/migration"
)

// TestPeerCourse: what a source answers to a destination that asks on.
func TestPeerCourse(t *testing.T) {
	dir := t.TempDir()
	a := &Agent{config: &config.Config{Host: "paris", State: dir}, outgoing: map[string]*outgoing{}, records: noRecords(&config.Config{Host: "paris", State: dir})}
	plan := func(id string) migration.Plan { return migration.Plan{ID: id, Guest: "web", From: "paris", To: "rome"} }
	begin := func(id string) *outgoing {
		m := &outgoing{plan: plan(id), rec: record.New("paris", plan(id), time.Now())}
		a.outgoing[id] = m
		a.records.Add(m.rec)
		return m
	}
	end := func(id string, outcome migration.Outcome) {
		rec := record.New("paris", plan(id), time.Now())
		rec.End(outcome, &migration.Problem{Text: "why"}, time.Now())
		a.records.Add(rec)
	}
	begin("m-00000001")
	begin("m-00000002").told.Store(new(sourceDoing(t, migration.Release)))
	begin("m-00000003").told.Store(&migration.Source{Course: migration.Undoing, Outcome: migration.Aborted})
	end("m-00000004", migration.Aborted)
	end("m-00000005", migration.Completed)
	end("m-00000009", migration.Failed)
	begin("m-0000000a").told.Store(&migration.Source{Course: migration.Undoing, Outcome: migration.Failed})
	if err := statefile.Write(filepath.Join(dir, "history", "m-00000006.json"), record.Report{ID: "m-00000006", From: "paris", To: "rome", Outcome: migration.Aborted, Ended: 1}); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "journal"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "journal", "m-00000007.journal"), []byte("not to be read"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, id, caller string
		course           string
		released         bool
	}{
		{"under way", "m-00000001", "rome", talk.CourseUnderWay, false},
		{"let go", "m-00000002", "rome", talk.CourseUnderWay, true},
		{"turning back", "m-00000003", "rome", talk.CourseOver, false},
		{"aborted", "m-00000004", "rome", talk.CourseOver, false},
		{"completed", "m-00000005", "rome", talk.CourseOver, true},
		{"aborted under an earlier agent", "m-00000006", "rome", talk.CourseOver, false},
		{"a journal that cannot be read may have let go", "m-00000007", "rome", talk.CourseUnderWay, true},
		{"lost", "m-00000009", "rome", talk.CourseOver, false},
		{"being lost", "m-0000000a", "rome", talk.CourseOver, false},
		{"never begun", "m-00000008", "rome", talk.CourseUnknown, false},
		{"of another destination", "m-00000004", "berlin", talk.CourseUnderWay, true},
	} {
		r := &http.Request{TLS: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{DNSNames: []string{c.caller}}}}}
		r.SetPathValue("id", c.id)
		got, err := a.peerCourse(r)
		answer, ok := got.(talk.CourseAnswer)
		if err != nil || !ok || answer.Course != c.course || answer.Released != c.released {
			t.Errorf("%s: %+v, %v: want %s, released %v", c.name, got, err, c.course, c.released)
		}
		if lost := c.name == "lost" || c.name == "being lost"; answer.Lost != lost {
			t.Errorf("%s: lost %v", c.name, answer.Lost)
		}
	}
	r := &http.Request{}
	r.SetPathValue("id", "../guests/web")
	if _, err := a.peerCourse(r); err == nil {
		t.Error("an id that is a path was looked up")
	}
}
