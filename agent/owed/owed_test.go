package owed

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"godwit/agent/detour"
	"godwit/agent/statefile"
	"godwit/migration"
)

// TestWords: a subnet agent is told the last word about a guest, once, when it answers: by one asker, by the next agent
// where this one ends first, and not when it has been asked for the guest anew.
func TestWords(t *testing.T) {
	const answers = time.Second
	silent := errors.New("no route to host")
	word := func(step string) Word { return Word{"gate", detour.GiveBack{Guest: "web", Step: step}} }
	for name, c := range map[string]struct {
		does  func(begin func() *Words, answer func(error), end func())
		want  string // what was asked, a run of the same once, and "/" where its answers changed
		left  int    // files
		least int    // times that it was asked
	}{
		"it answers": {func(begin func() *Words, _ func(error), _ func()) {
			begin().Owe(word(detour.BackDone))
			time.Sleep(time.Minute)
		}, "done", 0, 1},
		"it answers, and a later word": {func(begin func() *Words, _ func(error), _ func()) {
			o := begin()
			o.Owe(word(detour.BackAway))
			time.Sleep(time.Minute)
			o.Owe(word(detour.BackDone))
			time.Sleep(time.Minute)
		}, "away done", 0, 2},
		"a later word while it answers": {func(begin func() *Words, _ func(error), _ func()) {
			o := begin()
			o.Owe(word(detour.BackAway))
			time.Sleep(answers / 2)
			o.Owe(word(detour.BackDone))
			time.Sleep(time.Minute)
		}, "away done", 0, 2},
		"what is no word": {func(begin func() *Words, _ func(error), _ func()) {
			o := begin()
			if err := statefile.Write(o.path("gate", "db"), word(detour.BackDone)); err != nil {
				panic(err)
			}
			o.Resume()
			time.Sleep(time.Minute)
		}, "", 1, 0},
		"it answers after an hour": {func(begin func() *Words, answer func(error), _ func()) {
			answer(silent)
			begin().Owe(word(detour.BackAway))
			time.Sleep(time.Hour)
			answer(nil)
			time.Sleep(time.Minute)
		}, "/ away / away", 0, 100},
		"a later word": {func(begin func() *Words, answer func(error), _ func()) {
			answer(silent)
			o := begin()
			for range 100 {
				o.Owe(word(detour.BackAway))
			}
			time.Sleep(time.Minute)
			o.Owe(word(detour.BackDone))
			time.Sleep(time.Minute)
			answer(nil)
			time.Sleep(time.Minute)
		}, "/ away done / done", 0, 5},
		"the next agent": {func(begin func() *Words, answer func(error), end func()) {
			answer(silent)
			begin().Owe(word(detour.BackAway))
			time.Sleep(time.Minute)
			end()
			answer(nil)
			begin().Resume()
			time.Sleep(time.Minute)
		}, "/ away / away", 0, 3},
		"it is asked for the guest anew": {func(begin func() *Words, answer func(error), _ func()) {
			answer(silent)
			o := begin()
			o.Owe(word(detour.BackAway))
			time.Sleep(time.Minute)
			o.Forget("gate", "web")
			time.Sleep(time.Minute)
			answer(nil)
			time.Sleep(time.Hour)
		}, "/ away /", 0, 3},
		"it refuses": {func(begin func() *Words, answer func(error), _ func()) {
			answer(&migration.Problem{Code: migration.CodeAddress, Text: "no"})
			begin().Owe(word(detour.BackAway))
			time.Sleep(2 * askRefused)
		}, "/ away", 0, 20},
		"it refuses, and a later word": {func(begin func() *Words, answer func(error), _ func()) {
			answer(&migration.Problem{Code: migration.CodeAddress, Text: "no"})
			o := begin()
			o.Owe(word(detour.BackAway))
			time.Sleep(askRefused - time.Minute)
			o.Owe(word(detour.BackDone))
			time.Sleep(2 * time.Minute)
		}, "/ away done", 1, 20},
		"it is silent": {func(begin func() *Words, answer func(error), _ func()) {
			answer(silent)
			begin().Owe(word(detour.BackAway))
			time.Sleep(2 * askRefused)
		}, "/ away", 1, 40},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var says error
				var asked []string
				asking := 0
				var cancel context.CancelFunc
				var askers sync.WaitGroup
				begin := func() *Words {
					ctx, end := context.WithCancel(t.Context()) // an asker of the agent before has that one's
					cancel = end
					return &Words{Ctx: ctx, Dir: dir, Log: func(string, ...any) {}, Go: func(f func()) { askers.Go(f) }, Ask: func(_ context.Context, host string, ask detour.GiveBack) error {
						time.Sleep(answers)
						mu.Lock()
						defer mu.Unlock()
						if ctx.Err() != nil {
							return ctx.Err()
						}
						if asking++; len(asked) == 0 || asked[len(asked)-1] != ask.Step {
							asked = append(asked, ask.Step)
						}
						if host != "gate" || ask.Guest != "web" {
							t.Errorf("%s is asked for %s", host, ask.Guest)
						}
						return says
					}}
				}
				c.does(begin, func(err error) { mu.Lock(); says, asked = err, append(asked, "/"); mu.Unlock() }, func() { cancel() })
				mu.Lock()
				if got := strings.Join(asked, " "); got != c.want || asking < c.least || asking > 150 {
					t.Errorf("asked %q, %d times; want %q", got, asking, c.want)
				}
				mu.Unlock()
				if left, err := os.ReadDir(dir); err != nil || len(left) != c.left {
					t.Errorf("%d files, %v; want %d", len(left), err, c.left)
				}
				cancel()
			})
		})
	}
}

// TestLaterWord: whatever a later word says otherwise, it is told, also where it comes while the one before it is answered.
func TestLaterWord(t *testing.T) {
	addr := netip.MustParseAddr("10.2.1.40")
	for name, later := range map[string]func(*detour.GiveBack){
		"of another move":    func(b *detour.GiveBack) { b.Move = "m-00000002" },
		"another step":       func(b *detour.GiveBack) { b.Step = detour.BackDone },
		"of other addresses": func(b *detour.GiveBack) { b.Addresses = []detour.ReturnedAddr{{Addr: addr}} },
	} {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			var asked []detour.GiveBack // the asker's, until all is still
			o := &Words{Ctx: t.Context(), Dir: dir, Log: func(string, ...any) {}, Go: func(f func()) { go f() }, Ask: func(_ context.Context, _ string, ask detour.GiveBack) error {
				time.Sleep(time.Second)
				asked = append(asked, ask)
				return nil
			}}
			w := Word{"gate", detour.GiveBack{Guest: "web", Move: "m-00000001", Step: detour.BackAway}}
			o.Owe(w)
			time.Sleep(time.Second / 2)
			later(&w.Ask)
			o.Owe(w)
			time.Sleep(time.Minute)
			synctest.Wait()
			if len(asked) != 2 || !reflect.DeepEqual(asked[1], w.Ask) {
				t.Errorf("%s: %+v", name, asked)
			}
		})
	}
}
