package policy

// Beside is another copy that goes over the same paths.
type Beside struct {
	Left int64 // bytes that it has yet to send; less than 0: nobody knows, it is taken to be no shorter
	Most int64 // bit/s that it takes at most; 0: as much as it gets
}

// amid is how long so many bytes take over paths that carry so many per second, of which others take their part: each that has something to send gets as
// much as another, so that by the end of it each has sent as many, or all that it has. alone is what they take alone, which a limit may make longer.
func (f Facts) amid(bytes, carried, alone float64) float64 {
	took := alone
	for range 20 { // what one of low bandwidth sends is the more the longer that takes
		sum := bytes
		for _, other := range f.Beside {
			part := bytes
			if other.Left >= 0 {
				part = min(part, float64(other.Left))
			}
			if other.Most > 0 {
				part = min(part, float64(other.Most)/8*took)
			}
			sum += part
		}
		took = max(took, sum/carried)
	}
	return took
}
