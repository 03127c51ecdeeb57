package pages

// Store holds what waits, what is in flight and what was delivered. Its methods may be
// called from any goroutine.
type Store struct{}

// New makes a store for a guest of total pages whose contents live in the arena.
func New(total uint64, arena *Arena) *Store { panic("not yet") }

// Put adds the newest version of a page; data is copied, nil is a page of zeros. ErrFull
// says that nothing was added: call again when Room says so. After End, it is never
// ErrFull; an error of the spill file is returned, and the store is of no more use.
func (s *Store) Put(page uint64, data []byte) error { panic("not yet") }

// End says that the END header was seen: from now on Put always accepts.
func (s *Store) End() { panic("not yet") }

// Stop says that the guest is stopped: the newest version of a page is taken even while a
// frame with an older one is unacknowledged, and none is skipped.
func (s *Store) Stop() { panic("not yet") }

// PostCopy says that the guest runs at the destination: the hottest go first. It implies
// Stop and End.
func (s *Store) PostCopy() { panic("not yet") }

// Skip keeps pages of this heat and more until Stop; 0 keeps none.
func (s *Store) Skip(heat int) { panic("not yet") }

// Urgent puts a page before all others. It says whether the page waited; if not, it is in
// flight or delivered (or was never put).
func (s *Store) Urgent(page uint64) bool { panic("not yet") }

// Take takes up to most pages with content (MaxPages at the most), and zero pages beside
// them up to MaxZero, as one frame. Urgent pages travel alone. It returns nil if nothing
// may be taken now. A page's number, data and base are valid until Sent; its data until
// the frame is acknowledged. An error is the spill file's.
func (s *Store) Take(most int) (*Frame, error) { panic("not yet") }

// Sent says that the frame was coded. Call it before the frame's first byte leaves. Pages
// whose Coding is Same count as not sent. An empty frame is sent nevertheless, for its
// number.
func (s *Store) Sent(f *Frame) { panic("not yet") }

// Acked says that the destination has all of a frame. A frame that is settled already is
// ignored; one that was not sent is an error.
func (s *Store) Acked(frame uint64) error { panic("not yet") }

// Missed is Acked for a frame of which some pages could not be decoded. They wait again,
// to be sent whole, unless a newer version does or is under way. One call tells all: an
// Acked before it would have given up their contents.
func (s *Store) Missed(frame uint64, missed []uint64) error { panic("not yet") }

// Find looks for a page that the destination has with this page's content, by its bytes
// or its identity. The page itself is among them (then it is unchanged).
func (s *Store) Find(p *Page) (page, version uint64, ok bool) { panic("not yet") }

// Missing calls yield for each run of pages that the destination may not have: they wait
// or are unacknowledged, by rising number.
func (s *Store) Missing(yield func(first, count uint64) bool) { panic("not yet") }

// Ready is signalled when there may be something to take; one goroutine may wait for it.
func (s *Store) Ready() <-chan struct{} { panic("not yet") }

// Room is signalled when Put may have room again; one goroutine may wait for it.
func (s *Store) Room() <-chan struct{} { panic("not yet") }

// Progress returns the counts.
func (s *Store) Progress() Progress { panic("not yet") }

// Drained says whether nothing waits and nothing is in flight.
func (s *Store) Drained() bool { panic("not yet") }
