package policy

// Beside is another copy that goes over the same paths.
type Beside struct {
	Left int64 // bytes that it has yet to send; less than 0: nobody knows, it is taken to be no shorter
	Most int64 // bit/s that it takes at most; 0: as much as it gets
}

// amid is how long so many bytes take over paths that carry so many per second, of which others take their part: each
// that has something to send gets as much as another, so that by the end of it each has sent as many, or all that it
// has. alone is what they take alone, which a limit may make longer. What others have sent by then is taken from what
// they have left.
func (f Facts) amid(bytes, carried, alone float64) float64 {
	took := alone
	for range 20 { // what one of low bandwidth sends is the more the longer that takes
		sum := bytes
		for _, other := range f.Beside {
			sum += other.part(bytes, took)
		}
		took = max(took, sum/carried)
	}
	for i, other := range f.Beside {
		if other.Left > 0 {
			f.Beside[i].Left -= int64(other.part(bytes, took))
		}
	}
	return took
}

// part is what another sends while one beside it sends so many bytes, in so many seconds.
func (b Beside) part(bytes, took float64) float64 {
	if b.Left >= 0 {
		bytes = min(bytes, float64(b.Left))
	}
	if b.Most > 0 {
		bytes = min(bytes, float64(b.Most)/8*took)
	}
	return bytes
}
