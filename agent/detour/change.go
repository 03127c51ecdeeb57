package detour

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"godwit/agent/statefile"
)

// Change edits the detours of one guest and makes the kernel follow. On error the
// kernel may have part of it; calling it again is safe, and CatchUp does.
func (s *Store) Change(guest string, edit func(map[string]*Detour)) error {
	return s.settle(guest, func() {
		s.now() // what edit leases is leased by it
		edit(s.byID)
	})
}

// ErrUnwritten says that the kernel follows a change, and that it is not on the disk yet: CatchUp sees to that.
var ErrUnwritten = errors.New("detours are not written down")

// ChangeNow is Change of what packets must not wait with for a disk that is full: it is done when the kernel follows.
func (s *Store) ChangeNow(guest string, edit func(map[string]*Detour)) error {
	if err := s.Change(guest, edit); !errors.Is(err, ErrUnwritten) {
		return err
	}
	return nil
}

// settle makes the kernel and the disk equal to what the guest's detours are after edit.
func (s *Store) settle(guest string, edit func()) error {
	change, err := s.follow(guest, edit)
	if err == nil {
		err = s.write(change)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.stale[guest] = max(s.stale[guest], change)
	} else if s.stale[guest] <= change {
		delete(s.stale, guest)
	}
	return err
}

// follow makes the kernel equal to what the guest's detours are after edit, and numbers the change.
func (s *Store) follow(guest string, edit func()) (change uint64, err error) {
	own, ownErr := hostHas(s.network.Bridge)
	s.mu.Lock()
	defer s.mu.Unlock()
	if ownErr == nil { // or they are those of the last look
		s.learn(own)
	}
	edit()
	s.made++
	return s.made, s.apply(guest)
}

// write returns when the disk has that change.
func (s *Store) write(change uint64) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.written >= change {
		return nil // it went with a later one
	}
	s.mu.Lock()
	made := s.made
	s.byClock()
	data, err := json.Marshal(s.byID)
	s.mu.Unlock()
	if err == nil {
		err = statefile.Write(s.path, json.RawMessage(data))
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnwritten, err)
	}
	s.written = made
	return nil
}

// Follow makes the kernel equal to what the guest's detours are, where none changes: by an agent that was killed it may
// lead by one that was never written down. What fails CatchUp repeats.
func (s *Store) Follow(guest string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.apply(guest)
	if err != nil {
		s.owe(guest)
	}
	return err
}

// owe has CatchUp make the kernel equal to what the guest's detours are. mu is held.
func (s *Store) owe(guest string) {
	s.made++
	s.stale[guest] = s.made
}

// CatchUp repeats changes that failed, such as on a disk that was full: of a detour that is
// no more nobody else would.
func (s *Store) CatchUp() error {
	s.mu.Lock()
	guests := slices.Collect(maps.Keys(s.stale))
	s.mu.Unlock()
	var err error
	for _, guest := range guests {
		err = errors.Join(err, s.settle(guest, func() {}))
	}
	return err
}

// RemoveIf is Remove for a detour of which over says so as it is then; gone says that there is none of that id now.
// over must not ask the store.
func (s *Store) RemoveIf(ctx context.Context, id string, over func(*Detour) bool) (gone bool, err error) {
	s.mu.Lock()
	s.now()
	d, ok := s.byID[id]
	if gone = !ok || over(d); gone {
		delete(s.byID, id)
	}
	s.mu.Unlock()
	if !ok || !gone {
		return gone, nil
	}
	err = s.settle(d.Guest, func() {})
	return true, errors.Join(err, DropTunnel(ctx, d.Tunnel.Dir, d.Tunnel.Name))
}
