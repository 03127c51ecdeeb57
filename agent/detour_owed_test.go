package agent

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"godwit/migration"
)

// TestOwedWords: a subnet agent is told the last word about a guest, once, when it answers: by one asker, by the next agent
// where this one ends first, and not when it has been asked for the guest anew.
func TestOwedWords(t *testing.T) {
	silent := errors.New("no route to host")
	word := func(step string) owedWord { return owedWord{"gate", GiveBack{Guest: "web", Step: step}} }
	for name, c := range map[string]struct {
		does func(begin func() *owedWords, answer func(error), end func())
		want string // what was asked, a run of the same once
		left int    // files
	}{
		"it answers": {func(begin func() *owedWords, _ func(error), _ func()) {
			begin().owe(word(backDone))
			time.Sleep(time.Second)
		}, "done", 0},
		"it answers after an hour": {func(begin func() *owedWords, answer func(error), _ func()) {
			answer(silent)
			begin().owe(word(backAway))
			time.Sleep(time.Hour)
			answer(nil)
			time.Sleep(time.Minute)
		}, "away", 0},
		"a later word": {func(begin func() *owedWords, answer func(error), _ func()) {
			answer(silent)
			o := begin()
			for range 100 {
				o.owe(word(backAway))
			}
			time.Sleep(time.Minute)
			o.owe(word(backDone))
			time.Sleep(time.Minute)
			answer(nil)
			time.Sleep(time.Minute)
		}, "away done", 0},
		"the next agent": {func(begin func() *owedWords, answer func(error), end func()) {
			answer(silent)
			begin().owe(word(backAway))
			time.Sleep(time.Minute)
			end()
			answer(nil)
			begin().resume()
			time.Sleep(time.Minute)
		}, "away", 0},
		"it is asked for the guest anew": {func(begin func() *owedWords, answer func(error), _ func()) {
			answer(silent)
			o := begin()
			o.owe(word(backAway))
			time.Sleep(time.Minute)
			o.forget("gate", "web")
			time.Sleep(time.Minute)
			answer(nil)
			time.Sleep(time.Hour)
		}, "away", 0},
		"it refuses": {func(begin func() *owedWords, answer func(error), _ func()) {
			answer(&migration.Problem{Code: migration.CodeAddress, Text: "no"})
			begin().owe(word(backAway))
			time.Sleep(2 * owedRefused)
		}, "away", 0},
		"it is silent": {func(begin func() *owedWords, answer func(error), _ func()) {
			answer(silent)
			begin().owe(word(backAway))
			time.Sleep(2 * owedRefused)
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
				begin := func() *owedWords {
					ctx, end := context.WithCancel(t.Context()) // an asker of the agent before has that one's
					cancel = end
					return &owedWords{ctx: ctx, dir: dir, log: func(string, ...any) {}, on: func(f func()) { askers.Go(f) }, ask: func(_ context.Context, host string, ask GiveBack) error {
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
