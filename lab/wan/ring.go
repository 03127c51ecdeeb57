package wan

// ring is a first-in, first-out queue that reuses its memory.
type ring[T any] struct {
	items []T // length is a power of two
	head  int
	count int
}

// push adds a zeroed item at the end and returns it, to be filled in place. The
// pointer holds until the next push.
func (r *ring[T]) push() *T {
	if r.count == len(r.items) {
		grown := make([]T, max(64, 2*len(r.items)))
		n := copy(grown, r.items[r.head:])
		copy(grown[n:], r.items[:r.head])
		r.items, r.head = grown, 0
	}
	item := &r.items[(r.head+r.count)&(len(r.items)-1)]
	var zero T
	*item = zero
	r.count++
	return item
}

// front returns the oldest item, nil if there is none.
func (r *ring[T]) front() *T {
	if r.count == 0 {
		return nil
	}
	return &r.items[r.head]
}

// at returns the item behind so many others.
func (r *ring[T]) at(i int) *T { return &r.items[(r.head+i)&(len(r.items)-1)] }

// pop removes the oldest item. What front returned holds until the next push.
func (r *ring[T]) pop() {
	r.head = (r.head + 1) & (len(r.items) - 1)
	r.count--
}
