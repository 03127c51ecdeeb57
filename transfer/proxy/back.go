package proxy

import (
	"bytes"
	"errors"
	"fmt"

	"godwit/transfer/pages"
	"godwit/transfer/qstream"
	"godwit/transfer/wire"
)

// mostMissed is how many pages may be missed before nothing of an offer is believed, and
// missedShare a share of those that were coded by it: memory of guests that are on their way changes. A
// miss costs some 50 bytes and a round trip, in which others go on.
const (
	mostMissed  = 1024
	missedShare = 16
)

// control takes what the destination says.
func (s *Source) control(topic wire.Topic, body []byte) error {
	switch topic {
	case wire.TopicReturn:
		return s.passBack(body)
	case wire.TopicReturnEnd:
		return nil // QEMU closes by itself when it has heard SHUT
	case wire.TopicMiss:
		frame, missed, err := wire.ParseMiss(body)
		if err != nil {
			return err
		}
		s.mu.Lock()
		store, known := s.store, s.codings.Pages[pages.Known]
		s.mu.Unlock()
		if store == nil {
			return errors.New("pages missed of a stream that has none")
		}
		if err := store.Missed(frame, missed); err != nil {
			return err
		}
		if s.early.Load() { // the guest may wait for it
			s.sender.Nudge()
		}
		if store.Progress().Missed > mostMissed+known/missedShare {
			s.offered.Drop()
		}
		return nil
	case wire.TopicOffer:
		o, err := wire.ParseOffer(body)
		if err != nil {
			return err
		}
		if err := s.offered.Add(o.Set, o.First, o.Hashes); err != nil || !o.All() {
			return err
		}
		if s.offeredAll.Swap(true) {
			return nil
		}
		s.mu.Lock()
		store := s.store
		s.mu.Unlock()
		if store != nil { // QEMU was read meanwhile, faster than the offer came
			store.ForeseeAgain()
		}
		return nil
	case wire.TopicFault:
		return s.fault(body)
	case wire.TopicWanted:
		return s.want(body)
	}
	return fmt.Errorf("control of topic %d to the source", topic)
}

// passBack gives QEMU a message of its return path; SWITCHOVER_ACK when it is allowed.
func (s *Source) passBack(body []byte) error {
	m, err := qstream.NewReturnPath(bytes.NewReader(body)).Next()
	if err != nil {
		return err
	}
	if len(m.Raw) != len(body) {
		return errors.New("return path: more than a message")
	}
	if m.Type == qstream.SwitchoverAck {
		s.mu.Lock()
		twice := s.acked
		s.acked = true
		s.mu.Unlock()
		if twice {
			return errors.New("return path: a second SWITCHOVER_ACK")
		}
		s.passAck()
		return nil
	}
	if m.Type == qstream.Shut {
		if s.config.Refill {
			defer s.noteShut()
			return s.passShut(body)
		}
		s.noteShut() // before QEMU hears it, and closes
	}
	s.toQEMU(body)
	return nil
}

func (s *Source) noteShut() {
	s.shutOnce.Do(func() { close(s.shut) })
}

// fault puts pages that the guest waits for before all others.
func (s *Source) fault(body []byte) error {
	wanted, err := wire.ParseFault(body)
	if err != nil {
		return err
	}
	s.mu.Lock()
	store, early := s.store, s.early.Load()
	s.mu.Unlock()
	if store == nil || !early {
		return errors.New("pages asked for before the guest runs")
	}
	for _, page := range wanted {
		if page >= store.Total() {
			return fmt.Errorf("page %d of %d asked for", page, store.Total())
		}
		if s.config.Refill {
			s.hasten(page)
		} else {
			store.Urgent(page)
		}
	}
	s.faults.Add(int64(len(wanted)))
	s.sender.Nudge()
	return nil
}

// passAck sends SWITCHOVER_ACK once, when it has come and is allowed.
func (s *Source) passAck() {
	s.mu.Lock()
	due := s.acked && s.allowed && !s.passedOn
	s.passedOn = s.passedOn || due
	s.mu.Unlock()
	if due {
		s.toQEMU(qstream.AppendMessage(nil, qstream.SwitchoverAck, nil))
	}
}

// toQEMU writes a whole message. That it can't be written is no news: the reader of the
// same connection finds out as well.
func (s *Source) toQEMU(message []byte) {
	s.mu.Lock()
	conn := s.qemu
	s.mu.Unlock()
	if conn == nil {
		return
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	conn.Write(message) //nolint:errcheck // see above
}
