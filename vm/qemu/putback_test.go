package qemu

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	"godwit/vm"
)

// settable is a fake that keeps what it is told to have.
type settable struct {
	*fake
	mu     sync.Mutex
	caps   map[string]bool
	params map[string]string
	status string

	refuses     bool // to be set any more, after so many commands
	refuseAfter int
}

// newSettable has what QEMU has by itself, and what its owner has set.
func newSettable(t *testing.T, version string, caps map[string]bool, params map[string]string) (*settable, *Process) {
	t.Helper()
	f, p := newFake(t, version)
	s := &settable{fake: f, status: "none", params: map[string]string{"tls-creds": `""`}, caps: map[string]bool{"events": false, "zero-blocks": false}}
	for name, value := range ours.params {
		s.params[name] = string(value)
	}
	maps.Copy(s.caps, ours.caps)
	if strings.HasPrefix(version, "7.") { // these came later
		delete(s.params, "avail-switchover-bandwidth")
		delete(s.caps, "switchover-ack")
	}
	maps.Copy(s.caps, caps)
	maps.Copy(s.params, params)
	f.set(func() { f.first = s.answer })
	return s, p
}

func (s *settable) answer(command, args string) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuses && strings.HasPrefix(command, "migrate-set-") {
		if s.refuseAfter--; s.refuseAfter < 0 {
			return refused, true
		}
	}
	switch command {
	case "query-migrate-capabilities":
		var all []string
		for name, state := range s.caps {
			all = append(all, fmt.Sprintf(`{"capability": %q, "state": %v}`, name, state))
		}
		return "[" + strings.Join(all, ", ") + "]", true
	case "query-migrate-parameters":
		var all []string
		for name, value := range s.params {
			all = append(all, fmt.Sprintf("%q: %s", name, value))
		}
		return "{" + strings.Join(all, ", ") + "}", true
	case "migrate-set-capabilities":
		var set struct{ Capabilities []capability }
		err := json.Unmarshal([]byte(args), &set)
		for _, c := range set.Capabilities {
			if _, knows := s.caps[c.Name]; !knows {
				err = errors.New(c.Name)
			}
			s.caps[c.Name] = c.State
		}
		if err != nil {
			return refused, true
		}
	case "migrate-set-parameters":
		var set map[string]json.RawMessage
		err := json.Unmarshal([]byte(args), &set)
		for name, value := range set {
			if _, knows := s.params[name]; !knows {
				err = errors.New(name)
			}
			s.params[name] = string(value)
		}
		if err != nil {
			return refused, true
		}
	case "migrate":
		s.status = "active"
	case "migrate_cancel":
		if s.status == "active" {
			s.status = "cancelled"
		}
	case "query-yank", "query-memdev":
		return "[]", true
	case "query-status":
		return `{"status": "paused"}`, true
	case "query-migrate":
		return fmt.Sprintf(`{"status": %q, "ram": {}}`, s.status), true
	}
	return "{}", true
}

func (s *settable) has() (map[string]bool, map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	caps := maps.Clone(s.caps)
	delete(caps, "events") // which stays
	return caps, maps.Clone(s.params)
}

// TestPutsBack: a migration that came to nothing leaves QEMU's capabilities and parameters as its owner had set them,
// whatever it came to, and so does the next. An agent that knows nothing of them leaves QEMU's own where one before it
// has left a migration's, and else what it finds.
func TestPutsBack(t *testing.T) {
	every := vm.MigrateOptions{URI: "unix:/x", HoldSwitchover: true, LooksAtOnce: true, Throttles: true, Multifd: true, Channels: 4, Compression: "zstd", CompressionLevel: 3}
	xbzrle := vm.MigrateOptions{URI: "unix:/x", Xbzrle: true, MaxBandwidth: 1e6}
	owners := map[string]string{"max-bandwidth": "1000000000", "downtime-limit": "500", "multifd-channels": "8", "cpu-throttle-initial": "30"}
	for _, version := range []string{"7.2.22", "8.1.0", "10.0.2", "11.1.0"} {
		for name, c := range map[string]struct {
			status string // that it comes to
			new    bool   // the agent
		}{"cancelled": {"", false}, "broken": {"failed", false}, "declined": {"completed", false}, "another agent": {"", true}} {
			s, p := newSettable(t, version, map[string]bool{"auto-converge": !c.new, "zero-blocks": true}, owners)
			caps, params := s.has()
			if c.new {
				for name := range owners {
					params[name] = string(ours.params[name])
				}
			}
			for _, opts := range []vm.MigrateOptions{every, xbzrle, held} {
				if err := p.Migrate(t.Context(), opts); err != nil {
					t.Fatalf("%s, %s: %v", version, name, err)
				}
				if s.mu.Lock(); c.status != "" {
					s.status = c.status
				}
				s.mu.Unlock()
				if c.new {
					p.asked, p.before = false, nil // as one that has just attached to it
				}
				if err := p.CancelMigration(t.Context()); err != nil && !errors.Is(err, ErrCompleted) {
					t.Fatalf("%s, %s: %v", version, name, err)
				}
				nowCaps, nowParams := s.has()
				if !maps.Equal(caps, nowCaps) || !maps.Equal(params, nowParams) {
					t.Errorf("%s, %s:\n%v\n%v\nwere\n%v\n%v", version, name, nowCaps, nowParams, caps, params)
				}
			}
		}
	}
}

// TestPutsBackRounds: an owner's own announce-rounds are no sign that a migration of ours left anything: what he has
// set is put back.
func TestPutsBackRounds(t *testing.T) {
	s, p := newSettable(t, "10.0.2", map[string]bool{"return-path": true}, map[string]string{"announce-rounds": "1", "max-bandwidth": "0"})
	caps, params := s.has()
	for range 2 {
		if err := p.Migrate(t.Context(), held); err != nil {
			t.Fatal(err)
		}
		if err := p.CancelMigration(t.Context()); err != nil {
			t.Fatal(err)
		}
		if nowCaps, nowParams := s.has(); !maps.Equal(caps, nowCaps) || !maps.Equal(params, nowParams) {
			t.Errorf("%v %v, were %v %v", nowCaps, nowParams, caps, params)
		}
	}
}

// TestPutsBackWhereItWasInterrupted: an agent that ended as it put settings back leaves them to be told by the next.
func TestPutsBackWhereItWasInterrupted(t *testing.T) {
	for after := range 2 { // of the commands by which it does
		s, p := newSettable(t, "10.0.2", nil, nil)
		caps, params := s.has()
		if err := p.Migrate(t.Context(), held); err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		s.refuseAfter = after
		s.refuses = true
		s.mu.Unlock()
		if err := p.CancelMigration(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		s.refuses = false
		s.mu.Unlock()
		p.asked, p.before = false, nil // as one that has just attached to it
		if err := p.CancelMigration(t.Context()); err != nil {
			t.Fatal(err)
		}
		if nowCaps, nowParams := s.has(); !maps.Equal(caps, nowCaps) || !maps.Equal(params, nowParams) {
			t.Errorf("after %d commands: %v %v, were %v %v", after, nowCaps, nowParams, caps, params)
		}
	}
}

// TestPutsBackNothingOfOthers: where no migration of ours left anything, what the owner has set stays.
func TestPutsBackNothingOfOthers(t *testing.T) {
	s, p := newSettable(t, "10.0.2", map[string]bool{"multifd": true}, map[string]string{"max-bandwidth": "0", "announce-rounds": "1"})
	caps, params := s.has()
	s.mu.Lock()
	s.status = "cancelled"
	s.mu.Unlock()
	if err := p.CancelMigration(t.Context()); err != nil {
		t.Fatal(err)
	}
	if nowCaps, nowParams := s.has(); !maps.Equal(caps, nowCaps) || !maps.Equal(params, nowParams) {
		t.Errorf("%v %v, were %v %v", nowCaps, nowParams, caps, params)
	}
}
