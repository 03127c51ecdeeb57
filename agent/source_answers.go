package agent

import (
	"context"
	"errors"
	"net/http"
	"time"

	"godwit/agent/limits"
	"godwit/agent/talk"
	"godwit/migration"
)

// A guest that is stopped can only go once its destination has its release, and until that has refused it, it may not
// run on here. What carries its memory proves nothing of that: those connections are of the copy's beginning, and last
// though the two hosts believe each other's certificates no more, or a firewall takes no new ones. So the destination
// has answered a call before packets are led away, else the guest is not stopped. That is beside what is done then
// anyway, and leaves a connection for the release.

// answersTries is how often it is asked, answersAgain after the time before: that connection may be of a path that has
// died, and the next is dialled anew. A destination that is slow may still answer the first.
const (
	answersTries = 3
	answersAgain = time.Second
)

// askAhead asks the destination to have its LAN know of the next addresses, where clients are to be told of those, and
// else whether it answers. tellClients awaits the one, answers both.
func (m *outgoing) askAhead() {
	expects, answers := m.tells() && !m.work.told, make(chan error, 1)
	m.work.expected, m.work.answers = nil, answers
	if !expects {
		go func() { answers <- m.askWhether() }()
		return
	}
	expected := make(chan bool, 1)
	m.work.expected = expected
	go func() {
		free, err := m.askExpect()
		if expected <- free; unanswered(err) {
			err = m.askWhether()
		}
		answers <- err
	}()
}

// askExpect has the destination's LAN know of the next addresses, and says whether nobody else has them.
func (m *outgoing) askExpect() (free bool, err error) {
	var answer talk.ExpectAnswer
	err = limits.Expect.Do(m.a.ctx, func(ctx context.Context) error {
		return m.call(ctx, "expect", talk.Try{Epoch: m.plan.Epoch}, &answer)
	})
	if err != nil {
		m.a.log.Info("clients are told of the next address once the guest has arrived", "migration", m.plan.ID, "error", err)
	}
	return answer.Free && err == nil, err
}

// thereURL is of no migration: an agent of any version says so, and looks at no disk for that, which may hang, nor waits
// for another's work.
var thereURL = urlOf("-", "course")

// askWhether asks whether an agent is there.
func (m *outgoing) askWhether() error {
	return limits.Answers.Do(m.a.ctx, func(ctx context.Context) (last error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		answered := make(chan error, answersTries)
		for begun, ended := 0, 0; ended < answersTries; {
			var again <-chan time.Time
			if begun < answersTries {
				begun++
				go func() { answered <- m.link.Call(ctx, http.MethodGet, thereURL, nil, nil) }()
				again = time.After(answersAgain)
			}
			select {
			case last = <-answered:
				if !unanswered(last) {
					return nil
				}
				ended++
			case <-again:
			}
		}
		return last
	})
}

// unanswered says whether a call has come to nothing; a problem is an answer.
func unanswered(err error) bool {
	var problem *migration.Problem
	return err != nil && !errors.As(err, &problem)
}

// answers is an error of the kind notNow where the destination has not answered.
func (m *outgoing) answers(ctx context.Context) error {
	answers := m.work.answers
	if m.work.answers = nil; answers == nil {
		return nil
	}
	begun := time.Now()
	defer m.rec.Took("await an answer", begun)
	select {
	case err := <-answers:
		if unanswered(err) {
			return &notNow{migration.CodePeer, m.plan.To + " did not answer", err}
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
