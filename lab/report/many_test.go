package report

import (
	"fmt"
	"strings"
	"testing"
)

// TestPictureOfMany: what a picture has no room for is among the others, or counted, and not left out of a sum.
func TestPictureOfMany(t *testing.T) {
	r := &Report{DurationS: 10, Series: &Series{}}
	for i := range 11 {
		path := r.Series.Path(fmt.Sprintf("a%d-b%d", i, i))
		path.Add(1, 0)
		path.Add(9, 1e6)
		guest := fmt.Sprint("guest", i)
		r.Series.AddPages(i+1, guest, []PageSample{{T: 1, Left: 1e6}, {T: 9}})
		r.Series.Probe(guest).Add(2, 10, 20)
	}
	page := pageOf(t, r)
	for want, n := range map[string]int{">11 MB</text>": 1, ">others 4 MB</text>": 1, ">and 7 more in report.json</text>": 3} {
		if got := strings.Count(page, want); got != n {
			t.Errorf("%q is there %d times, want %d", want, got, n)
		}
	}
}
