package qga

import (
	"context"
	"math/rand/v2"
	"strconv"
	"time"
)

// endLimit bounds how long a script that nobody waits for any more is tried to be ended: the guest may stand still.
const endLimit = 2 * time.Second

// running is a script under way in the guest. All that it starts has its mark in the environment, also where the
// agent's answer, with its PID, was not waited for.
type running struct {
	mark string
	pid  int64 // 0: not known
}

func newRunning() *running {
	return &running{mark: "GODWIT_SCRIPT=" + strconv.FormatUint(rand.Uint64()|1<<63, 36)}
}

// ending ends all processes with the mark $0, which may start others meanwhile, and the process group of $1, or that alone.
const ending = `[ $1 = 0 ] || kill -s KILL -- -$1 || kill -s KILL $1
for i in 1 2 3 4 5; do
	found=$(grep -lsF "$0" /proc/[0-9]*/environ) # its status is of those that have ended meanwhile, too
	[ -n "$found" ] || break
	for p in $found; do p=${p#/proc/}; kill -s KILL ${p%%/*}; done
done`

// end is the command that ends it.
func (r *running) end() map[string]any {
	return map[string]any{"path": "/bin/sh", "arg": []string{"-c", ending, r.mark, strconv.FormatInt(r.pid, 10)}}
}

// endLater ends a script beside what its caller goes on with, which has waited for it long enough. The connection stays
// open for that.
func (c *Client) endLater(ctx context.Context, r *running) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.endings++
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
		defer cancel()
		_ = c.carryOut(ctx, nil, "guest-exec", r.end(), nil) // a guest that does not answer cannot be helped
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.endings--; c.closed && c.endings == 0 {
			c.conn.Close()
		}
	}()
}
