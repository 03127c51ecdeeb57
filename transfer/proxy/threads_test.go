package proxy

import (
	"testing"

	"godwit/internal/need"

	"golang.org/x/sys/unix"
)

// TestThreadsYieldAgain: threads that copy yield to guests, hurry while one stands still, and yield again while memory
// follows it; so does one that begins then.
func TestThreadsYieldAgain(t *testing.T) {
	need.Root(t) // who is not may yield, and not take it back
	var all threads
	ids, end := make(chan int), make(chan struct{})
	begin := func() int {
		go func() {
			defer all.enter()()
			ids <- unix.Gettid()
			<-end
		}()
		return <-ids
	}
	defer close(end)
	first := begin()
	for _, c := range []struct {
		how  string
		then func()
		want int
	}{{"copying", func() {}, courteous}, {"it stands still", all.hurry, 0}, {"it runs", all.calm, courteous}, {"told again", all.hurry, courteous}} {
		c.then()
		for _, id := range []int{first, begin()} {
			raw, err := unix.Getpriority(unix.PRIO_PROCESS, id) // 20 less the nice value, getpriority(2)
			if nice := 20 - raw; err != nil || nice != c.want {
				t.Errorf("%s: nice %d, %v; want %d", c.how, nice, err, c.want)
			}
		}
	}
}
