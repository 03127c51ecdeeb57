package migration

import (
	"flag"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// message between the two agents. To the destination effect says what is asked,
// to the source which question word answers.
type message struct {
	effect Effect
	word   string
}

// pair is a source and a destination over a network that loses, reorders and
// repeats, with agents that crash. What a crash forgets is what the agent keeps
// in memory: which effect is under way.
type pair struct {
	t    *rapid.T
	src  Source
	dst  Destination
	here struct {
		runs bool   // the guest runs at the source
		todo Effect // under way at the source; "": nothing
		sent bool   // todo asks the destination, and has
	}
	there struct {
		runs bool
		todo []Effect
	}
	toDst, toSrc []message
	released     bool // a release has left the source at least once
}

// TestOneRunningCopy explores both machines together (design.md, safety rule 1).
func TestOneRunningCopy(t *testing.T) {
	fixed(t, "rapid.seed", "20260107")
	fixed(t, "rapid.checks", "8000")
	outcomes := map[Outcome]int{}
	rapid.Check(t, func(t *rapid.T) {
		p := &pair{t: t}
		p.here.runs = true
		p.source(Input{Kind: Start})
		for range rapid.IntRange(0, 200).Draw(t, "length") {
			p.chance(rapid.IntRange(0, 19).Draw(t, "what"))
			p.check()
		}
		p.settle()
		outcomes[p.src.Outcome]++
	})
	for _, o := range []Outcome{Completed, Aborted, Refused} {
		if outcomes[o] < 50 { // else the walk does not get where it should
			t.Errorf("only %d of the walks ended %s: %v", outcomes[o], o, outcomes)
		}
	}
}

// fixed sets a flag of the test binary that nobody has set.
func fixed(t *testing.T, name, value string) {
	t.Helper()
	if f := flag.Lookup(name); f.Value.String() == f.DefValue {
		if err := flag.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
}

func (p *pair) chance(what int) {
	switch {
	case what < 6:
		p.performHere(false)
	case what < 9:
		p.performThere(false)
	case what < 12:
		p.deliver(&p.toDst, p.hear)
	case what < 15:
		p.deliver(&p.toSrc, p.answer)
	case what == 15: // memory gets there, or breaks
		if !p.dst.Loaded && p.dst.Landing == Waiting {
			p.destination([]Input{{Kind: LoadedAll}, {Kind: LoadedAll}, {Kind: Fault, Problem: why}}[p.draw(3)])
		}
	case what == 16:
		p.silent()
	case what == 17:
		if p.draw(6) == 0 { // somebody asks for an end, at either side
			p.abort()
		}
	case what == 18:
		if p.draw(3) == 0 {
			p.crashHere()
		}
	case what == 19:
		if p.draw(3) == 0 {
			p.crashThere()
		}
	}
}

func (p *pair) draw(n int) int { return rapid.IntRange(0, n-1).Draw(p.t, "n") }

// check is what must hold at every moment.
func (p *pair) check() {
	if p.here.runs && p.there.runs {
		p.t.Fatalf("the guest runs twice: %+v, %+v", p.src, p.dst)
	}
	if p.here.runs && p.src.Released() {
		p.t.Fatalf("the guest runs at the source after its release: %+v", p.src)
	}
	if p.there.runs && p.dst.Refused() {
		p.t.Fatalf("the guest runs where it was refused: %+v", p.dst)
	}
}

// source steps the source; an input that does not fit is dropped, as the agent does.
func (p *pair) source(in Input) {
	next, effects, err := p.src.Step(in)
	if err != nil {
		return
	}
	p.src = next
	if len(effects) > 0 {
		p.here.todo, p.here.sent = effects[0], false
	} else if next.Course == Ended {
		p.here.todo = ""
	}
}

func (p *pair) destination(in Input) {
	if next, effects, err := p.dst.Step(in); err == nil {
		p.dst, p.there.todo = next, append(p.there.todo, effects...)
	}
}

// performHere does the source's effect, or has it fail.
func (p *pair) performHere(surely bool) {
	e := p.here.todo
	switch {
	case e == "":
	case slices.Contains([]Effect{PrepareThere, UndoPrepareThere, Release, AwaitLanding}, e):
		p.released = p.released || e == Release
		p.here.sent = true
		p.toDst = append(p.toDst, message{effect: e})
	case !surely && e != Resume && p.draw(12) == 0: // a guest that cannot be resumed is lost: not for this machine to say
		p.source(Input{Kind: Fault, Effect: e, Problem: why})
	default:
		p.happenHere(e)
		p.source(Input{Kind: Done, Effect: e})
	}
}

func (p *pair) happenHere(e Effect) {
	switch e {
	case Pause:
		p.here.runs = false
	case Resume:
		p.here.runs = true
	}
}

// performThere does the destination's effect, or has it fail.
func (p *pair) performThere(surely bool) {
	if len(p.there.todo) == 0 {
		return
	}
	e := p.there.todo[0]
	p.there.todo = p.there.todo[1:]
	if !surely && p.draw(8) == 0 {
		p.destination(Input{Kind: Fault, Effect: e, Problem: why})
		return
	}
	p.there.runs = p.there.runs || e == StartGuest
	p.destination(Input{Kind: Done, Effect: e})
}

// deliver takes any message of a queue: it is lost, arrives, or arrives and stays
// to arrive again.
func (p *pair) deliver(queue *[]message, to func(message)) {
	if len(*queue) == 0 {
		return
	}
	i := p.draw(len(*queue))
	m := (*queue)[i]
	fate := p.draw(4)
	if fate != 3 {
		*queue = slices.Delete(*queue, i, i+1)
	}
	if fate != 0 {
		to(m)
	}
}

// hear is what the destination's agent makes of a call, and its answer.
func (p *pair) hear(m message) {
	switch m.effect {
	case PrepareThere:
		if p.dst.Landing == "" {
			p.destination(Input{Kind: Start})
		}
	case Release:
		p.destination(Input{Kind: Released})
	case UndoPrepareThere:
		p.destination(Input{Kind: Abort, Problem: why})
	}
	word := string(p.dst.Landing)
	switch {
	case p.dst.Running():
		word = "running"
	case p.dst.Refused(), p.dst.Landing == "" && m.effect == UndoPrepareThere: // nothing is here to undo
		word = "declined"
	}
	p.toSrc = append(p.toSrc, message{m.effect, word})
}

// answer is what the source's agent makes of an answer to what it asks now.
func (p *pair) answer(m message) {
	if m.effect != p.here.todo || !p.here.sent {
		return
	}
	done, fault := Input{Kind: Done, Effect: m.effect}, Input{Kind: Fault, Effect: m.effect, Problem: why}
	switch {
	case m.effect == PrepareThere && m.word == string(Waiting), m.effect == UndoPrepareThere && m.word == "declined":
		p.source(done)
	case m.effect == PrepareThere && m.word == "declined":
		p.source(fault)
	case m.effect == Release && m.word == "running", m.effect == AwaitLanding && m.word == "running":
		p.source(done)
	case m.effect == Release && m.word == "declined":
		p.source(Input{Kind: Declined, Effect: Release, Problem: why})
	}
}

// silent ends the source's wait for an answer.
func (p *pair) silent() {
	if !p.here.sent || p.here.todo == "" {
		return
	}
	kind := Fault
	if p.here.todo == Release {
		kind = NoAnswer
	}
	p.source(Input{Kind: kind, Effect: p.here.todo, Problem: why})
}

func (p *pair) abort() {
	if p.draw(2) == 0 {
		p.source(Input{Kind: Abort, Problem: why})
		return
	}
	p.destination(Input{Kind: Abort, Problem: why})
}

// crashHere ends the source's agent, before or just after its effect happened.
func (p *pair) crashHere() {
	if p.draw(2) == 0 {
		p.happenHere(p.here.todo)
	}
	p.source(Input{Kind: Restarted, Problem: why})
}

// crashThere ends the destination's agent; its QEMU lives and is asked first.
func (p *pair) crashThere() {
	if p.dst.Landing == "" {
		return
	}
	if p.draw(2) == 0 && len(p.there.todo) > 0 && p.there.todo[0] == StartGuest {
		p.there.runs = true
	}
	p.there.todo = nil
	switch {
	case p.dst.Running() || p.dst.Refused():
		p.destination(Input{Kind: Restarted, Problem: why})
	case p.there.runs:
		p.destination(Input{Kind: RunsAlready})
	default:
		p.dst.Loaded = false
		p.destination(Input{Kind: Restarted, Problem: why})
	}
}

// settle lets everything get through at last: the migration ends at both sides and
// exactly one guest runs, where the outcome says.
func (p *pair) settle() {
	for range 80 {
		p.performHere(true)
		for len(p.toDst) > 0 {
			m := p.toDst[0]
			p.toDst = p.toDst[1:]
			p.hear(m)
		}
		for len(p.there.todo) > 0 {
			p.performThere(true)
			p.check()
		}
		if p.released && !p.dst.Loaded {
			p.destination(Input{Kind: LoadedAll})
		}
		for len(p.toSrc) > 0 {
			m := p.toSrc[0]
			p.toSrc = p.toSrc[1:]
			p.answer(m)
		}
		if p.src.Course == Ended { // a destination that hears no more undoes by itself
			p.destination(Input{Kind: Abort, Problem: why})
		}
		p.check()
	}
	ends := p.src.Course == Ended && (p.dst.Landing == "" || p.dst.Landing == Landed || p.dst.Landing == Gone)
	if !ends || p.here.runs == p.there.runs || p.there.runs != (p.src.Outcome == Completed) {
		p.t.Fatalf("settled: runs here %v, there %v: %+v, %+v", p.here.runs, p.there.runs, p.src, p.dst)
	}
}
