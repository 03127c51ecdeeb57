package agent

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode"
)

// What the agent looks after each second, or repairs forward, may be wrong for weeks, such as where a disk is full:
// that is said, but not each time, or what matters else would be lost among it, and logs be full.

// sayAgain is between two times that the same is said.
const sayAgain = time.Minute

// rarely is what was said lately. The zero value is ready, for use by many.
type rarely struct {
	mu   sync.Mutex
	said map[string]time.Time
}

// warn logs msg with args, unless the same was logged lately; numbers in an error are not looked at: it may name a
// file, or a port, of which each try makes another.
func (r *rarely) warn(log *slog.Logger, msg string, args ...any) {
	words := []any{msg}
	for _, arg := range args {
		if err, is := arg.(error); is {
			arg = strings.Map(func(c rune) rune {
				if unicode.IsDigit(c) {
					return -1
				}
				return c
			}, err.Error())
		}
		words = append(words, arg)
	}
	if r.again(fmt.Sprint(words...)) {
		log.Warn(msg, args...)
	}
}

// again says whether words are to be said: they were not lately.
func (r *rarely) again(words string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for was, at := range r.said {
		if now.Sub(at) >= sayAgain {
			delete(r.said, was)
		}
	}
	if _, lately := r.said[words]; lately {
		return false
	}
	if r.said == nil {
		r.said = map[string]time.Time{}
	}
	r.said[words] = now
	return true
}
