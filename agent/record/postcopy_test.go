package record

import (
	"testing"
	"time"
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
