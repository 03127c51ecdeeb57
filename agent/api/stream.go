package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"godwit/agent/hook"
)

// Feed calls each with every event of all migrations of the host from now on, until ctx
// or the agent ends, or each returns an error, which it returns.
func (c *Client) Feed(ctx context.Context, each func(FeedEvent) error) error {
	return stream(ctx, c, http.MethodGet, "/v1/events", nil, each)
}

// Hook makes the caller a hook of the host's agent until ctx or the agent ends. Of a
// blocking event the error that each returns is the refusal of the migration; nil lets
// it go on. Its context ends when nobody waits for that any more. Calls of blocking events
// may overlap; the others come one after the other, and an error ends the subscription.
func (c *Client) Hook(ctx context.Context, sub hook.Subscription, each func(context.Context, hook.Call) error) error {
	var calls sync.WaitGroup
	defer calls.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var waiting sync.Map // number of a call → what ends it
	return stream(ctx, c, http.MethodPost, "/v1/hooks", sub, func(d hook.Delivery) error {
		switch {
		case d.Over:
			if end, ok := waiting.LoadAndDelete(d.ID); ok {
				end.(context.CancelFunc)()
			}
		case d.Call.Blocking:
			within, end := context.WithCancel(ctx)
			waiting.Store(d.ID, end)
			calls.Go(func() {
				defer end()
				defer waiting.Delete(d.ID)
				c.answer(ctx, sub.Name, d.ID, each(within, d.Call))
			})
		default:
			return each(ctx, d.Call)
		}
		return nil
	})
}

// answer lets a migration go on, or says why not. One that comes too late, or gets lost
// with the agent, is the agent's to tell.
func (c *Client) answer(ctx context.Context, name string, id uint64, why error) {
	answer := hook.Answer{ID: id, Go: why == nil}
	if why != nil {
		answer.Why = why.Error()
	}
	c.Do(ctx, http.MethodPost, "/v1/hooks/"+url.PathEscape(name)+"/answer", answer, nil) //nolint:errcheck // see above
}

// stream reads an answer of one JSON a line; it is to begin as soon as any other.
func stream[T any](ctx context.Context, c *Client, method, path string, request any, each func(T) error) error {
	asked, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(c.silence, func() { cancel(silent(c.silence)) })
	resp, err := c.open(asked, method, path, request)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if !late.Stop() {
		return c.unanswered(asked, context.Cause(asked))
	}
	dec := json.NewDecoder(resp.Body)
	for {
		var one T
		if err := dec.Decode(&one); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("ask agent at %s: its answer ended: %w", c.socket, err)
		}
		if err := each(one); err != nil {
			return err
		}
	}
}
