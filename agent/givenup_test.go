package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"testing"

	"golang.org/x/sys/unix"

	"godwit/agent/agenttest"
	"godwit/agent/disks"
	"godwit/agent/peer"
	"godwit/agent/talk"
	"godwit/migration"
	"godwit/transfer/paths"
	"godwit/vm"
	"godwit/vm/qemu/qmp"
)

// brokenWay is what carried memory, and has ended.
type brokenWay struct{ forwarder }

func (brokenWay) Err() error {
	return errors.New("the other end: migration m-00000001 is not under way on rome")
}

// TestCopyGivenUpThere: a copy that ended since the destination gave the guest up ends for its reason, and not for
// what QEMU saw of that.
func TestCopyGivenUpThere(t *testing.T) {
	for name, c := range map[string]struct {
		landing talk.LandingAnswer
		err     error
		code    migration.Code
		words   string
	}{
		"its agent was ended": {talk.LandingAnswer{Landing: migration.Gone, Problem: &migration.Problem{Code: migration.CodeAgent, Text: "the destination's agent ended"}}, nil,
			migration.CodeAgent, "migrate guest web: rome has given it up: the destination's agent ended"},
		"it says what is ours to say": {talk.LandingAnswer{Landing: migration.Gone, Problem: &migration.Problem{Code: migration.CodeGuestGone, Text: "gone\nfor good"}}, nil,
			migration.CodePeer, "rome has given it up: gone"},
		"it goes on":      {talk.LandingAnswer{Landing: migration.Waiting}, nil, migration.CodeHypervisor, "QEMU ended the copy: broken pipe"},
		"it says nothing": {talk.LandingAnswer{}, errors.New("who are you"), migration.CodeHypervisor, "QEMU ended the copy: broken pipe"},
	} {
		a, _ := served(t)
		m := leaving(a)
		m.work.forward = brokenWay{}
		m.link = linked(t, "paris", "rome", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { peer.Answer(w, c.landing, c.err) }))
		agenttest.Refused(t, name, m.copyEnded(t.Context(), vm.Progress{Error: "broken pipe"}), c.code, c.words)
		agenttest.Refused(t, name+" as it begins", m.notBegun(t.Context(), errors.New("broken pipe")), c.code, c.words)
	}
}

// fullWay is what carried memory until a disk was full.
type fullWay struct {
	forwarder
	err error
}

func (w fullWay) Err() error { return w.err }

// TestDiskFullIsToldByItsHost: a copy that ended as a disk was full is told as that, with the host that has it; what
// the destination says of what the source's lanes ended by follows from that.
func TestDiskFullIsToldByItsHost(t *testing.T) {
	here := fmt.Errorf("spill: %w", &fs.PathError{Op: "write", Path: "/var/lib/godwit/(unnamed)", Err: unix.ENOSPC})
	there := fmt.Errorf("lane 1: %w", &paths.PeerError{Text: "write mirror: disk quota exceeded"})
	gone := talk.LandingAnswer{Landing: migration.Gone, Problem: &migration.Problem{Code: migration.CodeCapacity, Text: "guest web did not arrive whole on rome: no space left on device"}}
	for name, c := range map[string]struct {
		ended error
		says  error // instead of gone
		code  migration.Code
		words string
	}{
		"the source's":                          {here, nil, migration.CodeCapacity, "a disk of paris is full: broken pipe; spill: write /var/lib/godwit"},
		"the destination's":                     {there, nil, migration.CodeCapacity, "rome has given it up: guest web did not arrive whole on rome: no space left"},
		"the destination's, which says nothing": {there, errors.New("who are you"), migration.CodeCapacity, "the other end: write mirror: disk quota exceeded"},
		"something else":                        {errors.New("broken"), errors.New("who are you"), migration.CodeHypervisor, "QEMU ended the copy: broken pipe; broken"},
		"something else of the other end's":     {&paths.PeerError{Text: "bad frame"}, errors.New("who are you"), migration.CodeHypervisor, "the other end: bad frame"},
	} {
		a, _ := served(t)
		m := leaving(a)
		m.work.forward = fullWay{err: c.ended}
		m.link = linked(t, "paris", "rome", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { peer.Answer(w, gone, c.says) }))
		agenttest.Refused(t, name, m.copyEnded(t.Context(), vm.Progress{Error: "broken pipe"}), c.code, c.words)
	}
	for _, ended := range []error{here, fmt.Errorf("lane: %w", &paths.PeerError{Text: "spill: no space left on device"})} {
		if got := codeOf(ended); got != migration.CodeCapacity {
			t.Errorf("a guest that did not arrive whole as %v: %s", ended, got)
		}
	}
	if got := codeOf(nil); got != migration.CodeHypervisor {
		t.Errorf("by QEMU's doing: %s", got)
	}
}

// TestCopyNotBegun: what has a reason of its own keeps it.
func TestCopyNotBegun(t *testing.T) {
	a, _ := served(t)
	m := leaving(a)
	agenttest.Refused(t, "nothing carried it", peer.AsProblem(m.notBegun(t.Context(), errors.New("busy"))), migration.CodeInternal, "busy")
	m.work.forward = brokenWay{}
	agenttest.Refused(t, "QEMU is gone", peer.AsProblem(m.notBegun(t.Context(), qmp.ErrClosed)), migration.CodeInternal, qmp.ErrClosed.Error(), "the other end")
	if err := m.notBegun(t.Context(), nil); err != nil {
		t.Errorf("one that has begun: %v", err)
	}
}

// wholeWay is what carries disks, and goes on.
type wholeWay struct{}

func (wholeWay) Err() error { return nil }

// TestDisksGivenUpThere: so does a copy of disks; what has another reason keeps it, and nobody is asked.
func TestDisksGivenUpThere(t *testing.T) {
	broke := &migration.Problem{Code: migration.CodeHypervisor, Text: "migrate guest web: the copy of disk0 to rome broke: Input/output error"}
	gone := talk.LandingAnswer{Landing: migration.Gone, Problem: &migration.Problem{Code: migration.CodeAgent, Text: "the destination's agent ended"}}
	for name, c := range map[string]struct {
		ways    interface{ Err() error }
		landing talk.LandingAnswer
		err     error
		code    migration.Code
		words   []string
	}{
		"its agent was ended": {brokenWay{}, gone, broke, migration.CodeAgent,
			[]string{"migrate guest web: rome has given it up: the destination's agent ended; here: the copy of disk0 to rome broke"}},
		"it goes on":            {brokenWay{}, talk.LandingAnswer{Landing: migration.Waiting}, broke, migration.CodeHypervisor, []string{broke.Text}},
		"the ways go on":        {wholeWay{}, gone, broke, migration.CodeHypervisor, []string{broke.Text}},
		"there are no disks":    {(*disks.Source)(nil), gone, broke, migration.CodeHypervisor, []string{broke.Text}},
		"nothing is the matter": {brokenWay{}, gone, nil, "", nil},
	} {
		a, _ := served(t)
		m := leaving(a)
		m.link = linked(t, "paris", "rome", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { peer.Answer(w, c.landing, nil) }))
		agenttest.Refused(t, name, m.disksEnded(t.Context(), c.ways, c.err), c.code, c.words...)
	}
}
