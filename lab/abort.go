package lab

import (
	"context"
	"fmt"
	"slices"
	"time"

	"godwit/agent/api"
)

// abort calls a guest's migration off: m, or, where that is nil, the one that has been asked for. An agent that is
// being started again is asked until it answers.
func (r *run) abort(ctx context.Context, name string, m *move) error {
	if m == nil {
		m = r.await(ctx, name)
	}
	switch {
	case m == nil && r.had(name), m != nil && m.ended():
		if m == nil {
			m = r.lastMove(name)
		}
		r.remark(m, "abort "+name+": its migration has its outcome already")
		return nil
	case m == nil:
		return fmt.Errorf("no migration of %s is under way", name)
	}
	select {
	case <-m.answered:
	case <-ctx.Done():
		return ctx.Err()
	}
	if m.id == "" {
		r.remark(m, "abort "+name+": this migration was refused before it could be called off")
		return nil
	}
	host := r.w.agents[m.from]
	for {
		err := host.client.Abort(ctx, m.id)
		switch {
		case err == nil:
			return nil
		case !api.Unanswered(err): // refused with a reason: that is an answer, and the outcome tells
			r.remark(m, err.Error())
			return nil
		case m.ended():
			return nil
		case host.goneForGood() || !r.due(ctx, 100*time.Millisecond):
			return err
		}
	}
}

// had says whether the guest has had a migration and none is asked for now.
func (r *run) had(name string) bool {
	r.mu.Lock()
	any := r.lastOf(name) != nil
	r.mu.Unlock()
	return any && !r.asks(name)
}

// lastMove is the guest's migration that was asked for last; nil: there is none.
func (r *run) lastMove(name string) *move {
	for _, m := range slices.Backward(r.movesNow()) {
		if m.guest == name {
			return m
		}
	}
	return nil
}

// remark tells what came of a call to a migration, and has the report tell it, too: it is no trouble, and the outcome alone
// would not say why it is what it is. m may be nil.
func (r *run) remark(m *move, text string) {
	r.tell(text)
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.remarks = append(m.remarks, oneLine(text))
}
