package agent

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"godwit/agent/api"
	"godwit/agent/hook"
	"godwit/agent/peer"
	"godwit/agent/record"
)

// feed hands the events of all migrations to those who watch them.
type feed struct {
	mu      sync.Mutex
	readers map[*feedReader]bool
}

// feedReader takes events at its own pace; what it does not take in time is counted.
type feedReader struct {
	events chan api.FeedEvent
	missed int
}

// feedAhead bounds the events that wait for a reader.
const feedAhead = 1024

func newFeed() *feed { return &feed{readers: map[*feedReader]bool{}} }

// publish never waits.
func (f *feed) publish(e api.FeedEvent) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for r := range f.readers {
		if r.missed > 0 && len(r.events) < feedAhead-1 {
			r.events <- api.FeedEvent{Event: record.Event{At: time.Now().UnixNano(), Host: e.Host, Kind: "note", Text: fmt.Sprintf("%d events were left out: they were not taken in time", r.missed)}}
			r.missed = 0
		}
		select {
		case r.events <- e:
		default:
			r.missed++
		}
	}
}

func (f *feed) join() *feedReader {
	r := &feedReader{events: make(chan api.FeedEvent, feedAhead)}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.readers[r] = true
	return r
}

func (f *feed) leave(r *feedReader) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.readers, r)
}

// apiFeed streams the events of all migrations from now on, one JSON a line.
func (a *Agent) apiFeed(w http.ResponseWriter, r *http.Request) {
	reader := a.feed.join()
	defer a.feed.leave(reader)
	lines := newLines(w)
	for {
		select {
		case e := <-reader.events:
			if lines.write(e) != nil {
				return
			}
		case <-r.Context().Done():
			return
		case <-a.ctx.Done():
			return
		}
	}
}

// apiHook makes the caller a hook for as long as it reads; see hook.Subscription.
func (a *Agent) apiHook(w http.ResponseWriter, r *http.Request) {
	var sub hook.Subscription
	err := peer.DecodeKnown(r, &sub)
	var n *hook.Subscriber
	if err == nil {
		n, err = a.hooks.Subscribe(sub)
	}
	if err != nil {
		peer.Answer(w, nil, err)
		return
	}
	defer n.Close()
	lines := newLines(w)
	for {
		select {
		case d := <-n.Calls():
			if lines.write(d) != nil {
				return
			}
		case <-r.Context().Done():
			return
		case <-n.Gone():
			return
		}
	}
}

func (a *Agent) apiHookAnswer(r *http.Request) (any, error) {
	var answer hook.Answer
	if err := peer.DecodeKnown(r, &answer); err != nil {
		return nil, err
	}
	return nil, a.hooks.Answer(r.PathValue("name"), answer)
}

// lines writes JSON, one value a line, and sends each at once.
type lines struct {
	enc   *json.Encoder
	flush func() error
}

// newLines begins the answer, so that the caller knows that it is heard.
func newLines(w http.ResponseWriter) lines {
	w.Header().Set("Content-Type", "application/x-ndjson")
	l := lines{json.NewEncoder(w), http.NewResponseController(w).Flush}
	l.flush() //nolint:errcheck // the first line tells
	return l
}

func (l lines) write(value any) error {
	if err := l.enc.Encode(value); err != nil {
		return err
	}
	return l.flush()
}
