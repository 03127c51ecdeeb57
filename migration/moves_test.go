package migration

// A move is one thing that can happen in a world.
type move struct {
	label label
	next  world
}

type label struct {
	text  string
	about string
	epoch uint64
}

// lost is why an agent's guest is no more.
var lost = &Problem{Code: CodeGuestGone, Text: "its QEMU is gone"}

// moves appends all that can happen in w.
func (x *explorer) moves(w world, out []move) []move {
	add := func(next world, text, about string, epoch uint64) {
		if next != w {
			out = append(out, move{label{text, about, epoch}, next})
		}
	}
	if w.here.up {
		x.sourceMoves(w, add)
	} else {
		next := w
		x.startSource(&next)
		add(next, "source: agent starts", "", 0)
	}
	if w.there.up {
		x.destinationMoves(w, add)
	} else {
		next := w
		x.startDestination(&next)
		add(next, "destination: agent starts", "", 0)
	}
	x.crashes(w, add)
	x.persons(w, add)
	if w.stream == flowing && w.faults > 0 {
		next := w
		next.stream = broken
		next.faults--
		add(next, "the stream of memory breaks", "", 0)
	}
	if x.letsQEMUStop && w.here.qemu == paused && w.stream != idle {
		next := w
		next.here.qemu = running
		add(next, "source: QEMU's migration fails, and QEMU continues the guest", "", 0)
	}
	if x.flushes && (w.here.disk != w.here.file || w.there.disk != w.there.file) {
		next := w
		next.here.disk, next.there.disk = w.here.file, w.there.file
		add(next, "the kernels write the journals out", "", 0)
	}
	return out
}

type adder func(next world, text, about string, epoch uint64)

func (x *explorer) sourceMoves(w world, add adder) {
	e := effects[w.here.todo[0]]
	epoch := x.src[w.here.state].Epoch
	ask, asks := asking[e]
	if e == "" {
		return
	}
	if x.src[w.here.state].Lost() && ask == askUndo {
		ask = askLose
	}
	x.deaths(w, add)
	if !asks {
		next := w
		x.performHere(&next, e)
		add(next, "source: done", string(e), 0)
		x.unwritten(w, next, e, add)
		if w.faults > 0 && e != Resume || e == CopyMemory && w.stream == broken {
			next := w
			if next.stream != broken {
				next.faults--
			}
			after := next
			x.source(&next, Input{Kind: Fault, Effect: e, Problem: why})
			add(next, "source: fails", string(e), 0)
			after.happenHere(e)
			x.source(&after, Input{Kind: Fault, Effect: e, Problem: why})
			add(after, "source: fails after it happened", string(e), 0)
		}
		return
	}
	next := w
	next.here.sent = true
	next.send(ask, epoch)
	add(next, "source: sends", spoken[ask], epoch)
	if !w.here.sent {
		return
	}
	next = w
	x.silence(&next, e)
	add(next, "source: no answer in time", string(e), 0)
	if e == Release { // QEMU here says that it failed; it may be wrong
		next := w
		next.send(askRefuse, epoch)
		add(next, "source: sends", spoken[askRefuse], epoch)
	}
	w.messages(func(m word, of uint64) {
		next := w
		if of == epoch && x.answer(&next, e, m) {
			add(next, "source: hears", spoken[m], of)
		}
	})
}

// unwritten is an effect after which the disk takes no record. What counts only when it is written fails then instead.
func (x *explorer) unwritten(w, next world, e Effect, add adder) {
	before, after := x.src[w.here.state], x.src[next.here.state]
	if w.faults == 0 || w.kills+w.reboots == 0 || after.Course != Forward || after.MustWrite(before) && !x.pausesUnwritten {
		return
	}
	next.faults--
	next.here.file, next.here.disk = w.here.file, w.here.disk
	add(next, "source: done, and what follows is not written", string(e), 0)
}

// performHere does one effect of the source's own; one that cannot be done fails.
func (x *explorer) performHere(w *world, e Effect) {
	in := Input{Kind: Done, Effect: e}
	if !w.happenHere(e) {
		in = Input{Kind: Fault, Effect: e, Problem: why}
	}
	x.source(w, in)
}

// happenHere is what an effect does to the world, and whether it could be done.
func (w *world) happenHere(e Effect) bool {
	switch e {
	case CheckHere:
		return w.here.qemu == running
	case CopyMemory:
		if w.there.qemu != waiting || w.stream != idle || w.here.qemu == gone {
			return false
		}
		w.stream = flowing
	case UndoCopyMemory:
		if w.kept = false; w.stream == flowing {
			w.stream = broken
		}
	case Pause:
		if w.here.qemu == gone {
			return false
		}
		w.here.qemu = paused
	case Resume:
		if w.here.qemu == gone {
			return false
		}
		w.stale = w.stale || w.here.qemu == paused && w.there.qemu == waiting
		w.here.qemu = running
	case CleanSource:
		w.here.qemu = gone
	}
	return true
}

// silence ends the source's wait for an answer.
func (x *explorer) silence(w *world, e Effect) {
	kind := Fault
	switch {
	case e == Release && x.takesBackOnTimeout:
		kind = Declined
	case e == Release:
		kind = NoAnswer
	}
	x.source(w, Input{Kind: kind, Effect: e, Problem: why})
}

// answer is what the source's agent makes of an answer to what it asks now.
func (x *explorer) answer(w *world, e Effect, m word) bool {
	switch {
	case e == PrepareThere && m == ready, e == UndoPrepareThere && m == undone, e == Release && m == runs, e == AwaitLanding && m == landed:
		return x.source(w, Input{Kind: Done, Effect: e})
	case e == PrepareThere && m == notReady:
		return x.source(w, Input{Kind: Fault, Effect: e, Problem: why})
	case e == Release && m == refuses, e == AwaitLanding && m == landRefused:
		return x.source(w, Input{Kind: Declined, Effect: e, Problem: why})
	}
	return false
}

func (x *explorer) destinationMoves(w world, add adder) {
	d := x.dst[w.there.state]
	if e := effects[w.there.todo[0]]; e != "" && !x.starves(&w, e) {
		next := w
		x.performThere(&next, e)
		add(next, "destination: done", string(e), 0)
		if w.faults > 0 && e != SendBack {
			next := w
			next.faults--
			x.failThere(&next, e)
			add(next, "destination: fails", string(e), 0)
		}
	}
	w.messages(func(m word, epoch uint64) {
		if m > askLanded {
			return
		}
		next := w
		x.hear(&next, m, epoch)
		add(next, "destination: hears", spoken[m], epoch)
	})
	if w.there.qemu == waiting {
		x.bytes(w, d, add)
	}
	if (d.Landing == Receiving || d.Landing == Waiting) && !d.Vanished {
		next := w
		x.destination(&next, Input{Kind: Abort, Problem: why})
		add(next, "destination: nothing heard of the source for too long", "", 0)
	}
	next := w
	x.inquire(&next)
	add(next, "destination: asks the source what became of it", "", 0)
}

// bytes are what a waiting QEMU sees of its stream. The last pages leave when the
// guest has been paused, whether it was released or not.
func (x *explorer) bytes(w world, d Destination, add adder) {
	next := w
	switch {
	case w.stream == flowing && w.here.qemu == paused, (w.stream == whole || w.stream == thin) && !d.Loaded:
		if w.stream == flowing {
			next.stream = whole
			if w.late {
				next.stream, next.kept = thin, true
			}
		}
		if x.destination(&next, Input{Kind: LoadedAll}); x.startsOnBytes {
			x.destination(&next, Input{Kind: Released, Epoch: d.Epoch})
		}
		add(next, "destination: QEMU has every byte", "", 0)
	case w.stream == broken:
		x.destination(&next, Input{Kind: Fault, Problem: why})
		add(next, "destination: the memory did not arrive whole", "", 0)
	}
}

// performThere does the first effect that the destination has to do.
func (x *explorer) performThere(w *world, e Effect) {
	w.there.todo = [3]uint8{w.there.todo[1], w.there.todo[2]}
	switch e {
	case Receive:
		w.there.qemu, w.stream, w.stale = waiting, idle, false
	case StartGuest:
		if w.there.qemu != waiting {
			x.destination(w, Input{Kind: Fault, Effect: e, Problem: why})
			return
		}
		w.there.qemu, w.ran = running, true
	case SendBack:
		if w.there.qemu != none {
			w.there.qemu = gone
		}
	}
	x.destination(w, Input{Kind: Done, Effect: e})
}

// failThere is an effect that did not happen; a QEMU that cannot start its guest is ended.
func (x *explorer) failThere(w *world, e Effect) {
	w.there.todo = [3]uint8{w.there.todo[1], w.there.todo[2]}
	if e == StartGuest && w.there.qemu == waiting {
		w.there.qemu = gone
	}
	x.destination(w, Input{Kind: Fault, Effect: e, Problem: why})
}

// hear is what the destination's agent makes of a call, and its answer.
func (x *explorer) hear(w *world, m word, epoch uint64) {
	d := x.dst[w.there.state]
	switch m {
	case askPrepare:
		if d.Landing == Gone && epoch > d.Epoch {
			w.there.state = x.destinationNumber(Destination{})
			d = Destination{}
		}
		if d.Landing == "" {
			x.destination(w, Input{Kind: Start, Epoch: epoch})
		}
	case askRelease:
		if x.destination(w, Input{Kind: Released, Epoch: epoch}); x.startsOnRelease {
			x.destination(w, Input{Kind: LoadedAll})
		}
	case askUndo:
		if d.Landing == "" {
			w.send(undone, epoch)
			return
		}
		x.destination(w, Input{Kind: Abort, Epoch: epoch, Problem: why})
	case askLose:
		switch {
		case d.Landing == "":
			w.send(undone, epoch)
			return
		case w.stream != whole:
			x.destination(w, Input{Kind: Lose, Epoch: epoch, Problem: lost})
		}
	case askRefuse:
		kind := AskRefusal
		if x.obeysAnyAbort {
			kind = Abort
		}
		x.destination(w, Input{Kind: kind, Epoch: epoch, Problem: why})
	}
	x.reply(w, m, epoch)
}

func (x *explorer) reply(w *world, m word, epoch uint64) {
	d := x.dst[w.there.state]
	switch {
	case (m == askUndo || m == askLose) && d.Landing == Gone && epoch >= d.Epoch:
		w.send(undone, epoch)
	case d.Epoch != epoch || d.Vanished:
	case m == askPrepare && d.Landing == Waiting:
		w.send(ready, epoch)
	case m == askPrepare && d.Refused():
		w.send(notReady, epoch)
	case m == askRelease && d.Running():
		w.send(runs, epoch)
	case m == askRelease && d.Declines():
		w.send(refuses, epoch)
		w.said = true
	case m == askLanded && d.Landing == Landed:
		w.send(landed, epoch)
	case m == askLanded && d.Landing == Gone: // it tells how it went when it is over
		w.send(landRefused, epoch)
	}
}

// inquire is the destination's own question, answered at once: what a source
// answers of an epoch that it gave up stays true.
func (x *explorer) inquire(w *world) {
	s, d := x.src[w.here.state], x.dst[w.there.state]
	if d.Landing == "" || d.Landing == Gone || !w.here.up {
		return
	}
	switch {
	case s.Epoch > d.Epoch:
		x.destination(w, Input{Kind: Abort, Epoch: s.Epoch, Problem: why})
	case s.Lost() && w.stream != whole:
		x.destination(w, Input{Kind: Lose, Problem: lost})
	case s.Course == "" && !d.Vanished, (s.Course == Undoing || s.Course == Ended) && !s.Released():
		x.destination(w, Input{Kind: Abort, Problem: why})
	}
}
