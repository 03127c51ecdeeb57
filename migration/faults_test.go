package migration

// crashes are the ends of agents and of hosts.
func (x *explorer) crashes(w world, add adder) {
	if w.kills > 0 && w.here.up {
		next := w
		next.kills--
		killHere(&next)
		add(next, "source: agent is killed", "", 0)
		if e := effects[w.here.todo[0]]; e != "" && asking[e] == 0 && e != PrepareThere {
			after := next
			after.happenHere(e)
			add(after, "source: agent is killed just after", string(e), 0)
		}
	}
	if w.kills > 0 && w.there.up {
		next := w
		next.kills--
		killThere(&next)
		add(next, "destination: agent is killed", "", 0)
		if e := effects[w.there.todo[0]]; e == StartGuest && next.there.qemu == waiting {
			next.there.qemu, next.ran = running, true
			add(next, "destination: agent is killed just after", string(e), 0)
		}
	}
	if w.reboots == 0 {
		return
	}
	next := w
	next.reboots--
	rebootHere(&next)
	add(next, "source: host reboots", "", 0)
	next.here.state, next.here.file = next.here.disk, next.here.disk
	add(next, "source: host reboots, the journal loses what was not synced", "", 0)
	next = w
	next.reboots--
	rebootThere(&next)
	add(next, "destination: host reboots", "", 0)
	next.there.state, next.there.file = next.there.disk, next.there.disk
	add(next, "destination: host reboots, the journal loses what was not synced", "", 0)
}

func killHere(w *world) {
	w.loseKept()
	w.here.up, w.here.sent, w.here.todo, w.here.state = false, false, [3]uint8{}, w.here.file
	if w.stream == flowing { // its forwarder is in the agent
		w.stream = broken
	}
}

func killThere(w *world) {
	w.loseKept()
	w.there.up, w.there.todo, w.there.state = false, [3]uint8{}, w.there.file
	if w.stream == flowing {
		w.stream = broken
	}
}

func rebootHere(w *world) {
	killHere(w)
	w.endHere()
}

func rebootThere(w *world) {
	w.died = w.died || w.there.qemu == running || w.there.qemu == waiting && w.here.qemu == gone
	killThere(w)
	if w.there.qemu != none {
		w.there.qemu = gone
	}
	w.rebooted = true
}

// startSource is an agent that finds its journal.
func (x *explorer) startSource(w *world) {
	w.here.up = true
	if s := x.src[w.here.state]; s.Course == "" || s.Course == Ended {
		return
	}
	in := Input{Kind: Restarted, Problem: why}
	if w.here.qemu == gone && !x.trustsItsJournal {
		in.Problem = lost
	}
	x.source(w, in)
}

// startDestination is an agent that finds its journal and asks its QEMU.
func (x *explorer) startDestination(w *world) {
	w.there.up = true
	d := x.dst[w.there.state]
	if d.Landing == "" || d.Landing == Gone || d.Landing == Landed {
		return
	}
	in := Input{Kind: Vanish, Problem: why}
	switch {
	case w.there.qemu == running && !d.Running() && !d.Refused():
		in = Input{Kind: RunsAlready}
	case w.there.qemu == running || w.there.qemu == waiting:
		in = Input{Kind: Restarted, Problem: why}
	case x.refusesAfterReboot && (d.Landing == Waiting || d.Landing == Starting):
		in = Input{Kind: Abort, Problem: why}
	}
	x.destination(w, in)
}

// persons abort, and decide where nobody else can.
func (x *explorer) persons(w world, add adder) {
	if w.asks == 0 {
		return
	}
	if w.here.up {
		next := w
		next.asks--
		if x.source(&next, Input{Kind: Abort, Problem: why}) {
			add(next, "a person aborts", "", 0)
		}
		off := !w.there.up && w.there.qemu != running && w.there.qemu != waiting
		next = w
		next.asks--
		if (off || x.lies || x.dst[w.there.state].Vanished) && x.takeBack(&next) {
			add(next, "a person has the other host fenced, and takes the guest back", "", 0)
		}
	}
	next := w
	next.asks--
	if w.there.up && x.disown(&next) {
		add(next, "a person gives the guest up at the destination", "", 0)
	}
}

// takeBack is refused where the source has no QEMU any more: there is nothing to take
// back, and the other side would end what it has.
func (x *explorer) takeBack(w *world) bool {
	w.person = true
	return w.here.qemu == paused && x.source(w, Input{Kind: TakeBack, Problem: why})
}

// disown is of a guest that may have run, or that misses pages.
func (x *explorer) disown(w *world) bool {
	w.person = true
	if !x.dst[w.there.state].Vanished && w.stream != thin || !x.destination(w, Input{Kind: Disown, Problem: why}) {
		return false
	}
	w.given, w.died = true, w.died || w.here.qemu == gone // where it was the only one, a person has lost it
	return true
}

// better does one thing of a world in which everything gets through at last, no
// more goes wrong, and a person decides what only a person can. It returns false
// when nothing is left to do.
func (x *explorer) better(w *world) bool {
	before := *w
	if !w.here.up {
		x.startSource(w)
	} else if !w.there.up {
		x.startDestination(w)
	} else {
		x.perform(w)
		if *w == before {
			x.decide(w)
		}
	}
	return *w != before
}

// perform does what both agents have to do, with every message delivered at once.
func (x *explorer) perform(w *world) {
	if e := effects[w.there.todo[0]]; e != "" && !x.starves(w, e) {
		x.performThere(w, e)
		return
	}
	s, d, before := x.src[w.here.state], x.dst[w.there.state], *w
	if w.there.qemu == waiting && s.Released() {
		x.bytes(*w, d, func(next world, _, _ string, _ uint64) { *w = next })
	}
	if *w != before {
		return
	}
	e := effects[w.here.todo[0]]
	ask, asks := asking[e]
	if s.Lost() && ask == askUndo {
		ask = askLose
	}
	switch {
	case e == "":
	case asks:
		w.here.sent = true
		w.send(ask, s.Epoch)
		x.hear(w, ask, s.Epoch)
		w.messages(func(m word, of uint64) {
			if of == s.Epoch && w.here.todo[0] == before.here.todo[0] && w.here.sent {
				x.answer(w, e, m)
			}
		})
		if w.here == before.here && e == UndoPrepareThere { // it runs there: not to be undone
			x.silence(w, e)
		}
	default:
		x.performHere(w, e)
	}
	if *w == before {
		x.follow(w)
	}
	if *w == before {
		x.inquire(w)
	}
}

// decide is a person's, where a host took a QEMU with it that may have run.
func (x *explorer) decide(w *world) {
	if !x.dst[w.there.state].Vanished {
		return
	}
	if !w.rebooted || w.said {
		x.wrong = "a person must decide, and no host took anything with it"
		if w.said {
			x.wrong = "a person must decide what was refused already"
		}
	}
	if next := *w; x.takeBack(&next) {
		*w = next
		return
	}
	x.disown(w)
}

// settled says what is wrong with a world in which nothing is left to do.
func (x *explorer) settled(w *world) string {
	s, d := x.src[w.here.state], x.dst[w.there.state]
	here, there := w.here.qemu == running, w.there.qemu == running
	switch {
	case s.Course != Ended && s.Course != "":
		return "the source never ends"
	case d.Landing != "" && d.Landing != Landed && d.Landing != Gone:
		return "the destination never ends"
	case here && there:
		return "the guest runs twice for good"
	case !here && !there && !w.died:
		return "the guest runs nowhere, and no host took it with it"
	case there && s.Outcome != Completed && s.Course != "":
		return "it runs at the destination, and the source says that it does not"
	case here && s.Lost():
		return "it runs at the source, and the source says that it is lost"
	case here && s.Outcome == Completed:
		return "it runs at the source, and the source says that it moved"
	}
	return ""
}
