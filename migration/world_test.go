package migration

import (
	"fmt"
	"math/bits"
)

// A world is both machines of one migration, their agents with their journals, the
// QEMU of each host, the stream of memory between them and the network. It is a
// value: two equal worlds have the same future.
//
// The network is the set of messages that were ever sent. Each may arrive at any
// later time, any number of times, or never: lost, late, repeated, reordered. A
// time-out may pass whenever something is awaited: clocks jump as they like.
//
// A journal is what an agent has written (file) and what is on the disk for sure
// (disk). An agent that is killed loses nothing that was written; a host that
// reboots loses its QEMU, and of its journal what was not synced, or not even that.
type world struct {
	here, there    side
	net            uint64
	stream         stream
	late           bool // post-copy: pages follow a guest that may run
	kept           bool // the source's forwarder has all of them, whatever becomes of its QEMU
	ran            bool // the guest has run at the destination
	stale          bool // the guest has run on at the source after what the stream holds
	person         bool // a person, or a fence, has decided
	given          bool // a person gave up what runs at the destination, or may
	died           bool // a host took the guest's only running or only whole QEMU with it
	rebooted       bool // the destination's host has
	said           bool // a refusal has been said
	kills, reboots uint8
	faults, asks   uint8 // what may still go wrong, and be asked by persons
	deaths         uint8 // of the source's QEMU
}

type side struct {
	state, file, disk uint16 // of the machine, by number
	qemu              qemu
	up                bool // the agent
	sent              bool // todo[0] asks the other side, and has
	todo              [3]uint8
}

type qemu uint8

const (
	none    qemu = iota
	waiting      // at the destination, with -S
	running
	paused // at the source
	gone
)

type stream uint8

const (
	idle stream = iota
	flowing
	broken
	thin  // the destination's QEMU may run the guest, and misses pages
	whole // it has every byte
)

// word is a message's kind; the first six go to the destination.
type word uint8

const (
	askPrepare word = iota
	askRelease
	askUndo
	askRefuse
	askLose
	askLanded
	ready
	notReady
	undone
	runs
	refuses
	landed
	landRefused
)

var spoken = [...]string{
	"prepare", "release", "abort", "ask for a refusal", "its pages are lost", "ask whether it landed",
	"ready", "not ready", "undone", "it runs", "refused", "it landed", "given up there",
}

const epochs = 4 // 1 … 4 fit into the network's bits

func (w *world) send(m word, epoch uint64) { w.net |= 1 << (uint64(m)*epochs + epoch - 1) }

// messages calls f with each message that was ever sent.
func (w *world) messages(f func(m word, epoch uint64)) {
	for left := w.net; left != 0; left &= left - 1 {
		n := bits.TrailingZeros64(left)
		f(word(n/epochs), uint64(n%epochs)+1) //nolint:gosec // below 64
	}
}

// effects by number; 0 is none.
var effects = []Effect{
	"", CheckHere, CheckThere, AskStart, PrepareThere, PrepareHere, SeedDisks, CopyMemory, AskSuspend, Flip, Pause, Release, AwaitLanding, CleanSource,
	UndoPrepareThere, UndoPrepareHere, UndoSeedDisks, UndoCopyMemory, Unflip, Resume,
	Receive, StartGuest, Adopt, Leave, SendBack,
}

var effectNumber = func() map[Effect]uint8 {
	out := map[Effect]uint8{}
	for i, e := range effects {
		out[e] = uint8(i) //nolint:gosec // few
	}
	return out
}()

// asking are the source's effects that are questions to the destination.
var asking = map[Effect]word{PrepareThere: askPrepare, UndoPrepareThere: askUndo, Release: askRelease, AwaitLanding: askLanded}

// machines numbers the states of both machines and remembers their steps, which
// depend on nothing else.
type machines struct {
	src      []Source
	dst      []Destination
	number   map[string]uint16
	srcSteps map[stepKey]stepped
	dstSteps map[stepKey]stepped
}

type stepKey struct {
	state uint16
	in    Input
}

type stepped struct {
	next   uint16
	effect uint8
	ok     bool
}

func newMachines() *machines {
	m := &machines{number: map[string]uint16{}, srcSteps: map[stepKey]stepped{}, dstSteps: map[stepKey]stepped{}}
	m.sourceNumber(Source{})
	m.destinationNumber(Destination{})
	return m
}

func (m *machines) sourceNumber(s Source) uint16 {
	key := fmt.Sprintf("s%+v", s)
	n, ok := m.number[key]
	if !ok {
		n = uint16(len(m.src)) //nolint:gosec // some hundred
		m.src, m.number[key] = append(m.src, s), n
	}
	return n
}

func (m *machines) destinationNumber(d Destination) uint16 {
	key := fmt.Sprintf("d%+v", d)
	n, ok := m.number[key]
	if !ok {
		n = uint16(len(m.dst)) //nolint:gosec // some hundred
		m.dst, m.number[key] = append(m.dst, d), n
	}
	return n
}

func (m *machines) stepSource(state uint16, in Input) stepped {
	key := stepKey{state, in}
	out, known := m.srcSteps[key]
	if !known {
		next, todo, err := m.src[state].Step(in)
		if err == nil {
			out = stepped{next: m.sourceNumber(next), ok: true}
			for _, e := range todo {
				out.effect = effectNumber[e]
			}
		}
		m.srcSteps[key] = out
	}
	return out
}

func (m *machines) stepDestination(state uint16, in Input) stepped {
	key := stepKey{state, in}
	out, known := m.dstSteps[key]
	if !known {
		next, todo, err := m.dst[state].Step(in)
		if err == nil {
			out = stepped{next: m.destinationNumber(next), ok: true}
			for _, e := range todo {
				out.effect = effectNumber[e]
			}
		}
		m.dstSteps[key] = out
	}
	return out
}

// source feeds the source's machine; its journal is written, and synced where the
// agent does. An input that does not fit is dropped, as the agent does.
func (x *explorer) source(w *world, in Input) bool {
	step := x.stepSource(w.here.state, in)
	if !step.ok {
		return false
	}
	before, after := x.src[w.here.state], x.src[step.next]
	w.here.state, w.here.file = step.next, step.next
	turned := after.Course == Undoing && before.Course == Forward
	if after.MustSync(before) && !x.unsyncedRelease && !(x.unsyncedTurn && turned) {
		w.here.disk = step.next
	}
	switch {
	case step.effect != 0:
		w.here.todo, w.here.sent = [3]uint8{step.effect}, false
	case after.Course == Ended:
		w.here.todo, w.here.sent = [3]uint8{}, false
	}
	return true
}

// destination feeds the destination's machine.
func (x *explorer) destination(w *world, in Input) bool {
	step := x.stepDestination(w.there.state, in)
	if !step.ok {
		return false
	}
	before, after := x.dst[w.there.state], x.dst[step.next]
	w.there.state = step.next
	if !after.Refused() || !x.forgetsRefusal {
		w.there.file = step.next
	}
	if after.MustSync(before) && !(x.unsyncedReady && after.Landing == Waiting) && !(x.unsyncedRefusal && after.Refused()) && !x.forgetsRefusal {
		w.there.disk = step.next
	}
	if step.effect != 0 {
		for i := range w.there.todo {
			if w.there.todo[i] == 0 {
				w.there.todo[i] = step.effect
				break
			}
		}
	}
	return true
}

// breach says which rule a world breaks; "" if none.
func (x *explorer) breach(w *world) string {
	here, there := w.here.qemu == running, w.there.qemu == running
	switch {
	case there && w.stream != whole && w.stream != thin:
		return "the guest runs at the destination without all of its memory"
	case x.lies: // of two that a false word made, one ends: see settled
		return ""
	case here && there:
		return "the guest runs twice"
	case here && w.here.up && x.src[w.here.state].Released():
		return "the guest runs at the source after its release"
	case x.src[w.here.state].Lost() && (w.here.qemu == paused || w.kept || w.stream == whole && there):
		return "the guest was given up, and its pages are there"
	case x.dst[w.there.state].Outcome == Failed && w.stream == whole && there:
		return "the guest was given up at the destination, and has every byte"
	case here && x.src[w.here.state].Lost():
		return "the guest runs at the source, which gave it up as lost"
	case there && w.there.up && x.dst[w.there.state].Refused() && !x.dst[w.there.state].Disowned:
		return "the guest runs where it was refused"
	case here && w.ran && !w.person:
		return "the guest runs at the source again, and it has run at the destination"
	case there && w.stale && !w.person:
		return "the guest runs at the destination as it was before it ran on at the source"
	}
	return ""
}
