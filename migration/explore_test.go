package migration

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// variant is an agent that breaks a rule of docs/ownership.md. The zero value keeps all.
type variant struct {
	takesBackOnTimeout bool // silence gives the guest back
	startsOnRelease    bool // without every byte
	startsOnBytes      bool // without the release
	forgetsRefusal     bool // does not journal it
	refusesAfterReboot bool // though the guest may have run
	obeysAnyAbort      bool // though the source had let go
	letsQEMUStop       bool // so QEMU also continues the guest
	unsyncedRelease    bool // that it will let go is journalled, not synced
	unsyncedTurn       bool // that it turned back from the switch is journalled, not synced
	trustsItsJournal   bool // after its host's end it takes what it finds for all that was written
	pausesUnwritten    bool // the guest is stopped, and let go, whether that is written or not
	unsyncedReady      bool
	unsyncedRefusal    bool
	waitsForEver       bool // for pages that are nowhere any more
	givesUpKept        bool // pages that it has itself
	lies               bool // persons say that a host is fenced that is not
	flushes            bool // kernels write journals out by themselves, at any time
	safety             bool // look no further than what must never be
}

type explorer struct {
	*machines
	variant
	wrong string // found while settling
}

func newExplorer(v variant) *explorer { return &explorer{machines: newMachines(), variant: v} }

// begin is a migration that has just been asked for.
func (x *explorer) begin(bounds world) world {
	w := bounds
	w.here.qemu, w.here.up, w.there.up = running, true, true
	x.source(&w, Input{Kind: Start, Epoch: 1})
	return w
}

// ends lets everything get through, and says what is wrong with where that leads.
// Worlds on the way are marked, so that each is looked at once.
// What was under way is lost.
func (x *explorer) ends(w world, known func(world) bool) (string, world) {
	x.wrong, w.net = "", 0
	for range 400 {
		if known(w) {
			return "", w
		}
		if !x.better(&w) {
			return x.settled(&w), w
		}
		if wrong := x.breach(&w); wrong != "" {
			return wrong, w
		}
		if x.wrong != "" {
			return x.wrong, w
		}
	}
	return "it never comes to rest", w
}

// found is a violation and the shortest way there.
type found struct {
	wrong string
	trace []label
	last  string
}

func (f *found) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, after %d steps:\n", f.wrong, len(f.trace))
	for i, l := range f.trace {
		fmt.Fprintf(&b, "%3d  %s %s", i+1, l.text, l.about)
		if l.epoch != 0 {
			fmt.Fprintf(&b, " (epoch %d)", l.epoch)
		}
		b.WriteByte('\n')
	}
	b.WriteString(f.last)
	return b.String()
}

type node struct {
	world  world
	parent int32
	move   uint16
}

// explore visits every world that can come of bounds, the nearest first, and
// returns the nearest that breaks a rule. A most of 0 is none.
func (x *explorer) explore(bounds world, most int) (*found, int) {
	first := x.begin(bounds)
	nodes := []node{{world: first, parent: -1}}
	seen := map[world]struct{}{first: {}}
	good := map[world]struct{}{}
	known := func(w world) bool {
		if _, ok := good[w]; ok {
			return true
		}
		good[w] = struct{}{}
		return false
	}
	var buffer []move
	for i := 0; i < len(nodes) && (most == 0 || i < most); i++ {
		w := nodes[i].world
		wrong := x.breach(&w)
		if wrong == "" && !x.safety {
			if wrong, _ = x.ends(w, known); wrong != "" {
				wrong = "once everything gets through: " + wrong
			}
		}
		if wrong != "" {
			return x.trace(nodes, i, wrong), i
		}
		buffer = x.moves(w, buffer[:0])
		for n, m := range buffer {
			if _, ok := seen[m.next]; !ok {
				seen[m.next] = struct{}{}
				nodes = append(nodes, node{m.next, int32(i), uint16(n)}) //nolint:gosec // some millions, some dozens
			}
		}
	}
	return nil, len(nodes)
}

func (x *explorer) trace(nodes []node, i int, wrong string) *found {
	f := &found{wrong: wrong, last: x.show(nodes[i].world)}
	for ; nodes[i].parent >= 0; i = int(nodes[i].parent) {
		f.trace = append(f.trace, x.moves(nodes[nodes[i].parent].world, nil)[nodes[i].move].label)
	}
	slices.Reverse(f.trace)
	return f
}

func (x *explorer) show(w world) string {
	s, d := x.src[w.here.state], x.dst[w.there.state]
	return fmt.Sprintf("     source %+v\n     destination %+v\n     %+v\n", s, d, w)
}

// ill says that the move from w is one that keeps a migration from going on; a walk
// takes few of them, to get anywhere.
func (m move) ill(w world) bool {
	left := func(w world) int { return int(w.kills) + int(w.reboots) + int(w.faults) + int(w.asks) + int(w.deaths) }
	return left(m.next) != left(w) || strings.Contains(m.label.text, "no answer") || strings.Contains(m.label.text, "nothing heard") ||
		m.label.about == spoken[askRefuse]
}

// walk takes chance's way through a large world.
func (x *explorer) walk(bounds world, random *rand.Rand, length int) (*found, world) {
	w := x.begin(bounds)
	var trace []label
	var buffer []move
	for range length {
		buffer = x.moves(w, buffer[:0])
		if len(buffer) == 0 {
			break
		}
		m := buffer[random.IntN(len(buffer))]
		if m.ill(w) && random.IntN(30) > 0 {
			continue
		}
		w, trace = m.next, append(trace, m.label)
		if wrong := x.breach(&w); wrong != "" {
			return &found{wrong, trace, x.show(w)}, w
		}
	}
	wrong, end := x.ends(w, func(world) bool { return false })
	if wrong != "" {
		return &found{"once everything gets through: " + wrong, trace, x.show(w)}, w
	}
	return nil, end
}

// TestEveryWorld looks at every world of a small size.
func TestEveryWorld(t *testing.T) {
	for _, c := range []struct {
		name   string
		v      variant
		bounds world
	}{
		{"two reboots, journals written out at any time", variant{flushes: true}, world{reboots: 2}},
		{"post-copy, two kills, a death of the source's QEMU, a fault", variant{}, world{late: true, kills: 2, deaths: 1, faults: 1}},
		{"post-copy, a reboot, a death, a person", variant{flushes: true}, world{late: true, reboots: 1, deaths: 1, asks: 1}},
		{"a person who fences wrongly: in the end one runs", variant{lies: true}, world{kills: 1, asks: 1}},
		{"a kill, a reboot, a fault, a person", variant{}, world{kills: 1, reboots: 1, faults: 1, asks: 1}},
		{"two kills, a reboot, a fault", variant{}, world{kills: 2, reboots: 1, faults: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, n := newExplorer(c.v).explore(c.bounds, 0)
			t.Logf("%d worlds", n)
			if f != nil {
				t.Fatal(f)
			}
		})
	}
}

// TestChance walks through worlds in which much more goes wrong than TestEveryWorld
// can go through.
func TestChance(t *testing.T) {
	const walks, length = 12000, 400
	honest, lying := newExplorer(variant{flushes: true}), newExplorer(variant{flushes: true, lies: true})
	outcomes := map[Outcome]int{}
	for seed := range uint64(walks) {
		random := rand.New(rand.NewPCG(20260107, seed))
		bounds := world{kills: 6, reboots: uint8(seed % 3), faults: 4, asks: uint8(seed % 4)} //nolint:gosec // below 4
		if seed%3 == 1 {
			bounds.late, bounds.deaths = true, 1
		}
		x := honest
		if seed%8 == 7 {
			x = lying
		}
		f, end := x.walk(bounds, random, length)
		if f != nil {
			t.Fatalf("seed %d: %v", seed, f)
		}
		outcomes[x.src[end.here.state].Outcome]++
	}
	t.Logf("%d walks of %d steps: %v", walks, length, outcomes)
	for o, least := range map[Outcome]int{Completed: 50, Aborted: 50, Refused: 50, Failed: 1} {
		if outcomes[o] < least { // else the walk does not get where it should
			t.Errorf("only %d of the walks ended %s: %v", outcomes[o], o, outcomes)
		}
	}
}

// TestBrokenVariants: the same exploration finds what is wrong with agents that break
// one rule, and tells the shortest way there.
func TestBrokenVariants(t *testing.T) {
	for _, c := range []struct {
		name   string
		v      variant
		bounds world
		wrong  string
		steps  int // of the shortest trace
	}{
		{"takes back on a time-out", variant{takesBackOnTimeout: true, safety: true}, world{}, "the guest runs twice", 20},
		{"starts before every byte is there", variant{startsOnRelease: true, safety: true}, world{}, "without all of its memory", 17},
		{"starts before the release", variant{startsOnBytes: true, safety: true}, world{faults: 1}, "the guest runs twice", 17},
		{"forgets its refusal", variant{forgetsRefusal: true, safety: true}, world{kills: 1, faults: 1}, "the guest runs twice", 25},
		{"refuses after its host's reboot", variant{refusesAfterReboot: true, safety: true}, world{reboots: 1}, "it has run at the destination", 23},
		{"obeys a source that let go, after its host's reboot", variant{obeysAnyAbort: true, safety: true}, world{reboots: 1}, "it has run at the destination", 25},
		{"lets QEMU do the stopping", variant{letsQEMUStop: true, safety: true}, world{}, "at the source after its release", 15},
		{"turns back from the switch without a sync", variant{unsyncedTurn: true, safety: true}, world{reboots: 1, faults: 1}, "as it was before it ran on", 21},
		{"takes its journal for whole after its host's end", variant{trustsItsJournal: true}, world{reboots: 1}, "the source says that it does not", 18},
		{"lets go without a sync", variant{unsyncedRelease: true, flushes: true}, world{reboots: 1}, "the source says that it does not", 19},
		{"stops a guest that runs by its journal", variant{pausesUnwritten: true}, world{kills: 1, faults: 1}, "runs nowhere", 14},
		{"is ready without a sync", variant{unsyncedReady: true}, world{reboots: 1}, "the source never ends", 12},
		{"waits for ever for pages that are nowhere any more", variant{waitsForEver: true}, world{late: true, reboots: 1}, "the source never ends", 16},
		{"gives up pages that it has itself", variant{givesUpKept: true, safety: true}, world{late: true, deaths: 1}, "its pages are there", 17},
		{"refuses without a sync", variant{unsyncedRefusal: true}, world{reboots: 1, faults: 1}, "refused already", 18},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, n := newExplorer(c.v).explore(c.bounds, 0)
			if f == nil {
				t.Fatalf("nothing found in %d worlds", n)
			}
			t.Logf("%d worlds: %v", n, f)
			if !strings.Contains(f.wrong, c.wrong) || len(f.trace) != c.steps {
				t.Errorf("want %q after %d steps", c.wrong, c.steps)
			}
		})
	}
}
