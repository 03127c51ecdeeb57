package policy

import (
	"testing"
	"time"
)

const (
	ms   = time.Millisecond
	mega = int64(1_000_000)
)

func TestDowntime(t *testing.T) {
	for _, c := range []struct {
		name string
		look Look
		rtt  time.Duration
		want time.Duration
	}{
		{"nothing is known", Look{Remaining: 1 << 30}, 0, load},
		{"half the round trip", Look{}, 40 * ms, load + 20*ms},
		{"the tail alone", Look{Goodput: tail}, 0, load + time.Second},
		{"what remains and the tail", Look{Remaining: 3 * tail, Goodput: 8 * tail}, 10 * ms, load + 5*ms + 500*ms},
		{"a release over a longer path", Look{Goodput: tail, Release: 2 * time.Second}, 20 * ms, load + 2*time.Second},
		{"a release that is there before memory", Look{Goodput: tail, Release: 500 * ms}, 20 * ms, load + 10*ms + time.Second},
		{"disks that are not in sync", Look{Goodput: tail, Disks: 70 * ms}, 20 * ms, load + 10*ms + time.Second + 70*ms},
		{"the dirty rate is in what remains", Look{Goodput: tail, DirtyRate: 1 << 40}, 0, load + time.Second},
		{"the tail as our own data path packs it", Look{Goodput: PackedTail, Tail: PackedTail}, 0, load + time.Second},
	} {
		if got := c.look.Downtime(c.rtt); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestLeast: an idle guest, too, stands still for the way and its devices, and what is to be allowed
// for it is enough to go by.
func TestLeast(t *testing.T) {
	for _, c := range []struct {
		rtt        time.Duration
		tail, rate int64
		want       time.Duration
	}{{0, 0, 0, load}, {60 * ms, PackedTail, 0, load + 30*ms}, {60 * ms, PackedTail, 10 * PackedTail, load + 130*ms}, {60 * ms, 0, 10 * tail, load + 130*ms}} {
		least := Least(c.rtt, c.tail, c.rate)
		if least != c.want {
			t.Errorf("%+v: %v", c, least)
		}
		budget := Allow(least)
		if budget < least+hardlyShorter || budget > least+hardlyShorter+10*ms || budget%(10*ms) != 0 {
			t.Errorf("%+v: %v are to be allowed", c, budget)
		}
		copying, got := Copying{Budget: budget, RTT: c.rtt}, Wait
		for round := int64(2); round < 8 && got == Wait; round++ {
			got = copying.See(Look{Turn: round, Goodput: c.rate, Tail: c.tail})
		}
		if c.rate > 0 && got != Go {
			t.Errorf("%+v: with %v allowed: %s", c, budget, got)
		}
	}
	facts := Facts{Content: 1 << 20, Memory: 1 << 20, Rate: 1e9, RTT: 600 * ms, Budget: 20 * ms, Tail: PackedTail}
	if got := Predict(facts).Downtime; got < load+300*ms || got > load+stopping+305*ms {
		t.Errorf("predicted with a budget that is less than the way: %v", got)
	}
}

// TestStretched: a pause that is foreseen to be somewhat longer than at the last look is taken, one that is
// longer by far is not; nor is a disk's part left out.
func TestStretched(t *testing.T) {
	for _, c := range []struct {
		remaining int64
		disks     time.Duration
		want      bool
	}{{2 * mega, 0, false}, {4 * mega, 0, false}, {5 * mega, 0, true}, {100 * mega, 0, true}, {2 * mega, 400 * ms, true}} {
		look := Look{Turn: 5, Remaining: c.remaining, Goodput: 10 * mega, Tail: PackedTail, Disks: c.disks}
		if got := look.Stretched(20*ms, 300*ms); got != c.want {
			t.Errorf("%d bytes left, disks %v: %v of 300 ms: %v", c.remaining, c.disks, look.Downtime(20*ms), got)
		}
	}
}

// TestInSync: a disk takes its own path, and the answer to what was last sent is awaited.
func TestInSync(t *testing.T) {
	for _, c := range []struct {
		left, rate int64
		want       time.Duration
	}{{0, mega, 0}, {0, 0, 0}, {mega, 10 * mega, 120 * ms}, {mega, 0, 20 * ms}} {
		if got := InSync(c.left, c.rate, 20*ms); got != c.want {
			t.Errorf("%d bytes at %d/s: %v, want %v", c.left, c.rate, got, c.want)
		}
	}
}

// TestSee feeds looks in turn; all but the last must say wait.
func TestSee(t *testing.T) {
	// At 10 MB/s what remains takes 100 ms for each MB.
	at := func(second, round, remaining int64) Look {
		return Look{At: time.Duration(second) * time.Second, Turn: round, Remaining: remaining*mega - tail, Goodput: 10 * mega}
	}
	// On a way back most pages are known, and the paths were never full: 0.7 MB/s arrived.
	known := func(round int64) Look {
		return Look{Turn: round, Remaining: 20_000, Goodput: 700_000, Tail: PackedTail}
	}
	// What the guest always writes to stays for the pause.
	kept := func(round, remaining int64, share float64) Look {
		l := at(round, round, remaining)
		l.Kept = share
		return l
	}
	disks := func(l Look, left time.Duration) Look {
		l.Disks = left
		return l
	}
	left := func(l Look, left int64) Look {
		l.Left = left * mega
		return l
	}
	unknown := func(round, remaining int64) Look { return Look{Turn: round, Remaining: remaining} }
	for _, c := range []struct {
		name  string
		limit time.Duration
		looks []Look
		want  Verdict
	}{
		{"the first round sends everything once", 0, []Look{at(0, 0, 1), at(1, 1, 1)}, Wait},
		{"hardly anything is left: go at once", 0, []Look{at(1, 2, 0)}, Go},
		{"within the budget, but another round may be better", 0, []Look{at(1, 2, 2)}, Wait},
		{"in the middle of a round: what remains is not exact", 0, []Look{at(1, 2, 9), at(2, 2, 0)}, Wait},
		{"within the budget, and most of what is left stays for the pause: go", 0, []Look{kept(2, 2, 0.9)}, Go},
		{"within the budget, but a part of what is left does not", 0, []Look{kept(2, 2, 0.5)}, Wait},
		{"most of what is left of memory stays for the pause, but disks are not in sync", 0, []Look{disks(kept(2, 1, 0.9), 50*ms)}, Wait},
		{"over the budget, whatever stays for the pause", 0, []Look{kept(2, 9, 0.9)}, Wait},
		{"rounds get better: wait for the best", 0, []Look{at(1, 2, 20), at(2, 3, 2), at(3, 4, 1)}, Wait},
		{"within, two rounds no better: go", 0, []Look{at(1, 2, 2), at(2, 3, 2), at(3, 4, 2)}, Go},
		{"a tenth better is not better", 0, []Look{at(1, 2, 200), at(2, 3, 199), at(3, 4, 198), at(4, 5, 2), at(5, 6, 2), at(6, 7, 2)}, Go},
		{"no better, but over the budget", 0, []Look{at(1, 2, 9), at(2, 3, 9), at(3, 4, 9), at(4, 5, 9)}, Wait},
		{"over the budget and no better when the limit has passed, at a round's beginning", 10 * time.Second, []Look{at(1, 2, 9), at(11, 3, 9), at(32, 4, 9)}, GiveUp},
		{"within a round", 10 * time.Second, []Look{at(1, 2, 9), at(11, 2, 9), at(32, 2, 9)}, GiveUp},
		{"in the first round", 10 * time.Second, []Look{at(5, 1, 9), at(35, 1, 9), at(36, 1, 9)}, GiveUp},
		{"no better, but the limit has not passed", 50 * time.Second, []Look{at(1, 2, 9), at(50, 2, 9)}, Wait},
		{"the limit rounds in a first round in which less and less is left: the paths carry less than was said", 10 * time.Second, []Look{at(5, 1, 90), at(35, 1, 80), at(65, 1, 70)}, Wait},
		{"pages that come later are packed less well: more is left to send, of less memory", 10 * time.Second, []Look{left(at(5, 1, 70), 300), left(at(35, 1, 80), 200), left(at(65, 1, 90), 100)}, Wait},
		{"it rounds while rounds get shorter", 10 * time.Second, []Look{at(1, 2, 90), at(31, 3, 60), at(61, 4, 50)}, Wait},
		{"also where the first of them could not be foreseen", 10 * time.Second, []Look{unknown(2, 90*mega), at(21, 3, 60), at(51, 4, 50), at(81, 5, 40)}, Wait},
		{"it rounds while the next round, of 90 s, goes on", 10 * time.Second, []Look{at(1, 2, 900), at(115, 2, 90)}, Wait},
		{"within the budget when that is over: another round is no choice", 10 * time.Second, []Look{at(1, 2, 3), at(32, 3, 2)}, Go},
		{"hardly anything was sent, and hardly anything is left", 0, []Look{known(2), known(3), known(4)}, Go},
		{"no shorter for long, and then within the budget by chance: the next may not be", 0, []Look{at(1, 2, 9), at(2, 3, 9), at(3, 4, 9), at(9, 5, 9), at(10, 6, 2)}, Go},
		{"the same, but not for long: the next may be better", 0, []Look{at(1, 2, 9), at(2, 3, 9), at(3, 4, 9), at(4, 5, 9), at(5, 6, 2)}, Wait},
		{"no limit", 0, []Look{at(1, 2, 9), at(1e6, 2, 9)}, Wait},
		{"what the paths carry is not known: no downtime can be foreseen", 0, []Look{unknown(2, 50*mega), unknown(3, 50*mega)}, Wait},
		{"not known, and nothing is left", 0, []Look{unknown(2, 0)}, Go},
		{"not known until the limit", 10 * time.Second, []Look{unknown(2, 50*mega), {At: 31 * time.Second, Turn: 3, Remaining: 50 * mega}}, GiveUp},
	} {
		t.Run(c.name, func(t *testing.T) {
			copying := Copying{Budget: 300 * ms, RTT: 20 * ms, Limit: c.limit}
			for i, l := range c.looks {
				want := Wait
				if i == len(c.looks)-1 {
					want = c.want
				}
				if got := copying.See(l); got != want {
					t.Fatalf("look %d, %+v: %s, want %s", i, l, got, want)
				}
			}
		})
	}
}

// TestRoundsOfMinutes: looks at our own data path are turns of their own, of which there are many in each round over
// memory. Over a slow path ever less is left of a round, for minutes: the copy goes on while rounds get shorter, and is
// given up when they do not.
func TestRoundsOfMinutes(t *testing.T) {
	const rest = 8 // MB that wait when the next round begins, at 1 MB/s
	for _, c := range []struct {
		name   string
		rounds []int64 // MB left as each begins
		ends   time.Duration
	}{
		{"one long round", []int64{400}, 0},
		{"each is half as long", []int64{200, 100, 50, 25, 13}, 0},
		{"each is as long", []int64{60, 60, 60, 60, 60}, 52*time.Second + 91*time.Second},
		{"each is as long, after some", []int64{200, 60, 60, 60, 60}, 192*time.Second + 52*time.Second + 91*time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			copying := Copying{Budget: 300 * ms, RTT: 20 * ms, Limit: 10 * time.Second}
			at, turn := time.Duration(0), int64(2)
			for round, begins := range c.rounds {
				for left := begins * mega; left > rest*mega; left -= mega / 10 {
					at += 100 * ms
					turn++
					got := copying.See(Look{At: at, Turn: turn, Round: int64(round + 2), Remaining: left - tail, Goodput: mega})
					if got == GiveUp && c.ends != 0 && (at-c.ends).Abs() < 2*time.Second {
						return
					}
					if got != Wait {
						t.Fatalf("%s in round %d, of which %d MB are left, after %v", got, round+2, left/mega, at)
					}
				}
			}
			if c.ends != 0 {
				t.Error("it is not given up")
			}
		})
	}
}

// TestLiftedLimit: under a low bandwidth rounds get no shorter. Once that is lifted, and the limit of the copy falls by
// it to what is over already, the copy is given the time to show what it carries now.
func TestLiftedLimit(t *testing.T) {
	const lifted = 650 * time.Second // shortly after the fifth round, of 160 MB, began
	for _, c := range []struct {
		name    string
		goodput int64         // once it is lifted
		rest    int64         // MB that wait as the next round begins
		ends    time.Duration // after it was
		want    Verdict
	}{
		{"what is left of a round fits", 12 * mega, -1, 13 * time.Second, Go},
		{"it does after a long one", mega * 3 / 2, -1, 104 * time.Second, Go},
		{"no round fits, nor gets shorter", 12 * mega, 8, 25*time.Second + 43*time.Second, GiveUp},
	} {
		copying, goodput := Copying{Budget: 300 * ms, RTT: 20 * ms, Limit: 834 * time.Second}, mega
		at, round, left, rest, got := time.Duration(0), int64(1), 200*mega, int64(8), Wait
		for turn := int64(1); got == Wait && at < 2*lifted; turn++ {
			if at == lifted {
				copying.Limit, goodput, rest = 94*time.Second, c.goodput, c.rest
			}
			if left <= rest*mega {
				round, left = round+1, 160*mega
			}
			got = copying.See(Look{At: at, Turn: turn, Round: round, Remaining: max(0, left-tail), Goodput: goodput})
			left -= goodput / 10
			at += 100 * ms
		}
		if got != c.want || (at-lifted-c.ends).Abs() > 2*time.Second {
			t.Errorf("%s: %s after %v, in round %d", c.name, got, at-lifted, round)
		}
	}
}

// TestBarely: a copy whose rounds get no shorter is known for one after a while, one that gains is none, and one that
// fits ends.
func TestBarely(t *testing.T) {
	for name, c := range map[string]struct {
		left []int64 // MB at 10 MB/s, as each round begins, one a second
		want int     // the first look from which on it is so; 0: none
	}{
		"each is as long":          {[]int64{90, 9, 9, 9, 9, 9, 9, 9, 9}, 7},
		"each is shorter":          {[]int64{900, 400, 200, 100, 50, 24, 12, 6, 4}, 0},
		"some are longer by turns": {[]int64{90, 9, 12, 9, 14, 9, 10, 9, 9}, 7},
		"one was shorter later":    {[]int64{90, 9, 9, 9, 5, 9, 9, 9, 9, 9, 9}, 10},
		"within the budget":        {[]int64{90, 9, 9, 9, 9, 9, 2}, 0},
	} {
		copying, got := Copying{Budget: 300 * ms}, 0
		for i, left := range c.left {
			look := Look{At: time.Duration(i+1) * time.Second, Turn: int64(i + 1), Remaining: left*mega - tail, Goodput: 10 * mega}
			if copying.See(look); got == 0 && copying.Barely(look.At) {
				got = i
			}
		}
		if got != c.want {
			t.Errorf("%s: from look %d on, want %d", name, got, c.want)
		}
	}
	if copying := (Copying{Budget: 300 * ms}); copying.Barely(time.Hour) {
		t.Error("before a look")
	}
}

// TestFirstThatFits: the first round that meets the budget ends a copy whose rounds get no shorter, whatever the one
// before it was.
func TestFirstThatFits(t *testing.T) {
	for name, lefts := range map[string][]int64{
		"they are as long":     {90, 18, 20, 20, 20, 20, 20, 20, 9},
		"the last was shorter": {90, 18, 20, 20, 20, 20, 22, 19, 9},
	} {
		copying, at := Copying{Budget: 10 * time.Second, RTT: 20 * ms}, time.Duration(0)
		for i, left := range lefts {
			want := Wait
			if i == len(lefts)-1 {
				want = Go
			}
			look := Look{At: at, Turn: int64(i + 1), Remaining: left*mega - tail, Goodput: mega}
			if got := copying.See(look); got != want {
				t.Errorf("%s: round %d of %d MB: %v, want %v", name, i+1, left, got, want)
			}
			at += time.Duration(left) * time.Second
		}
	}
}

// TestBarelyAfterSlower: over a path that got slow in a late round none is as short for long as the shortest before,
// though each is shorter than the one before: rounds do get shorter, until they do not.
func TestBarelyAfterSlower(t *testing.T) {
	for name, round := range map[string]int64{"each turn is a round": 0, "a round of many turns": 1} {
		copying, at := Copying{Budget: 100 * ms}, time.Duration(0)
		turn := int64(1)
		for i, c := range []struct {
			left, carries int64 // MB, MB/s
			barely        bool
		}{{90, 9, false}, {4, 4, false}, {36, 1, false}, {24, 1, false}, {16, 1, false}, {11, 1, false}, {7, 1, false}, {7, 1, true}} {
			for looks := range 1 + round*9 {
				look := Look{At: at, Turn: turn, Remaining: c.left*mega - tail - looks*mega/100, Goodput: c.carries * mega, Round: round * int64(i+1)}
				copying.See(look)
				turn++
			}
			at += time.Duration(c.left/c.carries) * time.Second
			if got := copying.Barely(at - 100*ms); got != c.barely && (round == 0 || i > 2) {
				t.Errorf("%s: at the end of round %d of %d MB: %v", name, i+1, c.left, got)
			}
		}
	}
}

func TestBest(t *testing.T) {
	copying := Copying{Budget: 300 * ms}
	if pause, work := copying.Best(); pause != 0 || work != 0 {
		t.Fatalf("before a look: %v, %v", pause, work)
	}
	for round, remaining := range []int64{9, 4, 6} {
		copying.See(Look{Turn: int64(round + 2), Remaining: remaining*mega - tail, Goodput: 10 * mega})
	}
	if pause, work := copying.Best(); pause != load+400*ms || work != 0 {
		t.Fatalf("%v, %v", pause, work)
	}
	for round, work := range []time.Duration{200 * ms, 300 * ms} { // the last look is not the best
		copying.See(Look{Turn: int64(round + 5), Goodput: 10 * mega, Work: work})
	}
	if pause, work := copying.Best(); pause != load+200*ms || work != 200*ms {
		t.Fatalf("with work: %v, %v", pause, work)
	}
}

// TestFits: what was left as the last round began counts, whatever was left before.
func TestFits(t *testing.T) {
	copying := Copying{Budget: 300 * ms}
	if copying.Fits() {
		t.Error("before a look")
	}
	for i, c := range []struct {
		remaining int64
		want      bool
	}{{9, false}, {2, true}, {4, false}, {2, true}} {
		look := Look{Turn: int64(i + 2), Remaining: c.remaining*mega - tail, Goodput: 10 * mega}
		if copying.See(look); copying.Fits() != c.want {
			t.Errorf("look %d, a pause of %v: fits: %v", i, look.Downtime(0), copying.Fits())
		}
	}
}

func TestConverges(t *testing.T) {
	for _, c := range []struct {
		dirty, carried int64
		want, calm     bool
	}{
		{0, 10e6, true, true}, // an idle guest, or one whose writing is not known
		{50e6, 0, true, true}, // paths of unknown rate
		{2e6, 10e6, true, true},
		{3e6, 10e6, true, false},
		{7e6, 10e6, true, false},
		{9e6, 10e6, false, false},
		{50e6, 10e6, false, false},
	} {
		if got := Converges(c.dirty, c.carried); got != c.want {
			t.Errorf("%d bytes/s written, %d carried: %v", c.dirty, c.carried, got)
		}
		if got := Calm(c.dirty, c.carried); got != c.calm {
			t.Errorf("%d bytes/s written in a short time, %d carried: calm: %v", c.dirty, c.carried, got)
		}
	}
}

// TestSlowPathHalves: over a path that carries a twentieth of what it did, from the second round on, each leaves half
// as much as the one before, and takes longer than the second was foreseen to: that copy is not given up, nor said to
// come to nothing.
func TestSlowPathHalves(t *testing.T) {
	copying := Copying{Budget: 2 * time.Second, RTT: 20 * ms, Limit: 94 * time.Second}
	at, left, goodput := 20*time.Second, 100e6, 12.5e6
	for round := int64(2); round < 20; round++ {
		for sent := 0.0; sent < left; sent += 0.6e6 {
			look := Look{At: at, Turn: round, Remaining: int64(left - sent), Goodput: int64(goodput), DirtyRate: 0.3e6}
			verdict := copying.See(look)
			if verdict == Go {
				return
			}
			if verdict == GiveUp || copying.Barely(at) {
				t.Fatalf("after %v, in round %d: %s, %v", at, round, verdict, copying.Barely(at))
			}
			at, goodput = at+time.Second, 0.6e6
		}
		left /= 2
	}
	t.Error("it did not end")
}
