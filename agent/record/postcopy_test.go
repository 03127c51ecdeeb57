package record

import (
	"testing"
	"time"

	"godwit/migration"
)

// TestPostCopyLasted: from running to the last page, whenever it is looked at; not known before both are.
func TestPostCopyLasted(t *testing.T) {
	const s = int64(time.Second)
	for _, c := range []struct {
		resumed, done int64
		want          float64
	}{{1000 * s, 1002 * s, 2}, {0, 1002 * s, 0}, {1000 * s, 0, 0}, {1000 * s, 999 * s, 0}} {
		var post PostCopy
		if post.Lasted(&Report{Resumed: c.resumed, MemoryDone: c.done}); post.LastedS != c.want {
			t.Errorf("ran at %d, the last page at %d: %v s, want %v", c.resumed, c.done, post.LastedS, c.want)
		}
	}
}

// TestAskedInThePause: what is asked of a record while the guest stands still copies nothing of it.
func TestAskedInThePause(t *testing.T) {
	r := New("paris", migration.Plan{ID: "m-00000001"}, time.Now())
	if early, whole := r.PagesFollow(); early || whole {
		t.Errorf("at first: early %v, whole %v", early, whole)
	}
	r.Edit(func(rep *Report) { rep.PostCopy, rep.MemoryDone = &PostCopy{}, 1 })
	if early, whole := r.PagesFollow(); !early || !whole {
		t.Errorf("then: early %v, whole %v", early, whole)
	}
	if n := testing.AllocsPerRun(100, func() { r.PagesFollow(); r.Moments() }); n > 0 {
		t.Errorf("asking takes %v allocations", n)
	}
}

// TestWaitsOfOneAgent: an agent that was started again counts waits anew, and tells no mean of those that it does not count.
func TestWaitsOfOneAgent(t *testing.T) {
	c := &PostCopy{Pages: 9}
	c.Waited(4, 200*time.Millisecond, 90*time.Millisecond)
	if c.Faults != 4 || c.MeanMS != 50 || c.LongestMS != 90 {
		t.Errorf("%+v", c)
	}
	c.Waited(0, 0, 0)
	if want := (PostCopy{Pages: 9}); *c != want {
		t.Errorf("counted anew: %+v, want %+v", *c, want)
	}
}
