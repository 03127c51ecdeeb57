package hook

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"godwit/migration"
)

// Subscription is what a program asks for that wants to be called over the API.
type Subscription struct {
	Name      string                `json:"name"` // its own, of those that are there now
	Events    []migration.EventName `json:"events"`
	TimeoutMS int                   `json:"timeout_ms,omitempty"` // 0: the default
	OnFailure string                `json:"on_failure,omitempty"` // what follows when it is silent or goes away
}

// Delivery is one call to a subscriber. A blocking one wants an Answer with its number.
type Delivery struct {
	ID   uint64 `json:"id"`
	Call Call   `json:"call,omitzero"`
	Over bool   `json:"over,omitempty"` // nobody waits for the answer to this call any more
}

// Answer lets the migration go on, or not.
type Answer struct {
	ID  uint64 `json:"id"`
	Go  bool   `json:"go"`
	Why string `json:"why,omitempty"` // not
}

const (
	subscribersMost = 64
	deliveriesAhead = 16 // that a subscriber has not taken yet
)

// Subscriber is a subscription that stands.
type Subscriber struct {
	set  *Set
	hook hook
	sub  Subscription
	out  chan Delivery
	gone chan struct{}
	once sync.Once

	mu      sync.Mutex
	answers map[uint64]chan Answer // of the calls that wait
}

// Subscribe makes a program a hook until Close. The error says what is wrong with sub.
func (s *Set) Subscribe(sub Subscription) (*Subscriber, error) {
	wrong := func(format string, a ...any) error {
		return &migration.Problem{Code: migration.CodeUsage, Text: "subscribe " + oneLine(sub.Name) + ": " + fmt.Sprintf(format, a...)}
	}
	if sub.Name == "" || len(sub.Name) > 64 || oneLine(sub.Name) != sub.Name {
		return nil, wrong("a name of 1 to 64 printable characters is needed")
	}
	if err := errors.Join(checkEvents(sub.Events), checkPolicy(time.Duration(sub.TimeoutMS)*time.Millisecond, sub.OnFailure)); err != nil {
		return nil, wrong("%s", oneLine(err.Error()))
	}
	n := &Subscriber{set: s, sub: sub, out: make(chan Delivery, deliveriesAhead), gone: make(chan struct{}), answers: map[uint64]chan Answer{}}
	n.hook = hook{name: sub.Name, timeout: time.Duration(sub.TimeoutMS) * time.Millisecond, goesOn: sub.OnFailure == Continue, run: n.deliver}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ctx.Err() != nil:
		return nil, wrong("the agent is stopping")
	case len(s.subs) >= subscribersMost:
		return nil, wrong("there are %d already", subscribersMost)
	case slices.ContainsFunc(s.subs, func(o *Subscriber) bool { return o.sub.Name == sub.Name }):
		return nil, wrong("there is one of that name already; choose another")
	}
	s.subs = append(s.subs, n)
	return n, nil
}

func (s *Set) subscribed(event migration.EventName) []hook {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []hook
	for _, n := range s.subs {
		if slices.Contains(n.sub.Events, event) {
			out = append(out, n.hook)
		}
	}
	return out
}

// Answer answers a blocking call of the subscriber of that name.
func (s *Set) Answer(name string, a Answer) error {
	s.mu.Lock()
	i := slices.IndexFunc(s.subs, func(n *Subscriber) bool { return n.sub.Name == name })
	var n *Subscriber
	if i >= 0 {
		n = s.subs[i]
	}
	s.mu.Unlock()
	if n != nil {
		n.mu.Lock()
		waits := n.answers[a.ID]
		delete(n.answers, a.ID)
		n.mu.Unlock()
		if waits != nil {
			waits <- a
			return nil
		}
	}
	return &migration.Problem{Code: migration.CodeUsage, Text: fmt.Sprintf("answer %d of subscriber %s: nobody waits for it; its limit may have passed", a.ID, oneLine(name))}
}

// Calls are what the subscriber is to be told.
func (n *Subscriber) Calls() <-chan Delivery { return n.out }

// Gone is closed when the subscription ended.
func (n *Subscriber) Gone() <-chan struct{} { return n.gone }

// Close ends the subscription. What waits for its answer fails.
func (n *Subscriber) Close() {
	n.once.Do(func() {
		n.set.mu.Lock()
		n.set.subs = slices.DeleteFunc(slices.Clone(n.set.subs), func(o *Subscriber) bool { return o == n })
		n.set.mu.Unlock()
		close(n.gone)
	})
}

// deliver hands a call over, and waits for the answer of a blocking one.
func (n *Subscriber) deliver(ctx context.Context, c Call) error {
	n.set.mu.Lock()
	n.set.next++
	d := Delivery{ID: n.set.next, Call: c}
	n.set.mu.Unlock()
	answer := make(chan Answer, 1)
	if c.Blocking {
		n.mu.Lock()
		n.answers[d.ID] = answer
		n.mu.Unlock()
		defer func() {
			n.mu.Lock()
			delete(n.answers, d.ID)
			n.mu.Unlock()
		}()
	}
	away := errors.New("the subscriber went away")
	select {
	case n.out <- d:
	case <-n.gone:
		return away
	case <-ctx.Done():
		return errors.New("the subscriber takes no calls")
	}
	if !c.Blocking {
		return nil
	}
	select {
	case a := <-answer:
		if a.Go {
			return nil
		}
		return &refusal{oneLine(a.Why)}
	case <-n.gone:
		return away
	case <-ctx.Done():
		select {
		case n.out <- Delivery{ID: d.ID, Over: true}:
		default: // it does not take any
		}
		return errors.New("the subscriber has not answered")
	}
}
