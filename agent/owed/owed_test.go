package owed

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"godwit/agent/detour"
	"godwit/migration"
)

// TestWords: a subnet agent is told the last word about a guest, once, when it answers: by one asker, by the next agent
// where this one ends first, and not when it has been asked for the guest anew.
func TestWords(t *testing.T) {
	silent := errors.New("no route to host")
	word := func(step string) Word { return Word{"gate", detour.GiveBack{Guest: "web", Step: step}} }
	for name, c := range map[string]struct {
		does func(begin func() *Words, answer func(error), end func())
		want string // what was asked, a run of the same once
		left int    // files
	}{
		"it answers": {func(begin func() *Words, _ func(error), _ func()) {
			begin().Owe(word(detour.BackDone))
			time.Sleep(time.Second)
		}, "done", 0},
		"it answers after an hour": {func(begin func() *Words, answer func(error), _ func()) {
			answer(silent)
			begin().Owe(word(detour.BackAway))
			time.Sleep(time.Hour)
			answer(nil)
			time.Sleep(time.Minute)
		}, "away", 0},
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
		}, "away done", 0},
		"the next agent": {func(begin func() *Words, answer func(error), end func()) {
			answer(silent)
			begin().Owe(word(detour.BackAway))
			time.Sleep(time.Minute)
			end()
			answer(nil)
			begin().Resume()
			time.Sleep(time.Minute)
		}, "away", 0},
		"it is asked for the guest anew": {func(begin func() *Words, answer func(error), _ func()) {
			answer(silent)
			o := begin()
			o.Owe(word(detour.BackAway))
			time.Sleep(time.Minute)
			o.Forget("gate", "web")
			time.Sleep(time.Minute)
			answer(nil)
			time.Sleep(time.Hour)
		}, "away", 0},
		"it refuses": {func(begin func() *Words, answer func(error), _ func()) {
			answer(&migration.Problem{Code: migration.CodeAddress, Text: "no"})
			begin().Owe(word(detour.BackAway))
			time.Sleep(2 * askRefused)
		}, "away", 0},
		"it is silent": {func(begin func() *Words, answer func(error), _ func()) {
			answer(silent)
			begin().Owe(word(detour.BackAway))
			time.Sleep(2 * askRefused)
		}, "away", 1},
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
				c.does(begin, func(err error) { mu.Lock(); says = err; mu.Unlock() }, func() { cancel() })
				mu.Lock()
				if got := strings.Join(asked, " "); got != c.want || asking > 150 {
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
