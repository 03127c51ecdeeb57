package proxy

import (
	"testing"

	"golang.org/x/sys/unix"

	"godwit/internal/need"
	"godwit/transfer/pages"
	"godwit/transfer/paths"
)

// TestThreadsYieldAgain: threads that copy yield to guests, hurry while one stands still, and yield again while memory
// follows it; so does one that begins then.
func TestThreadsYieldAgain(t *testing.T) {
	need.Root(t) // who is not may yield, and not take it back
	var all threads
	begin := beginning(t, &all)
	first := begin()
	for _, c := range []struct {
		how  string
		then func()
		want int
	}{{"copying", func() {}, courteous}, {"it stands still", all.hurry, 0}, {"it runs", all.calm, courteous}, {"told again", all.hurry, courteous}} {
		c.then()
		for _, id := range []int{first, begin()} {
			isNice(t, c.how, id, c.want)
		}
	}
}

// TestThreadsOfARefill yield to guests: that whose memory follows it runs, and so do others.
func TestThreadsOfARefill(t *testing.T) {
	need.Root(t) // who is not may yield, and not take it back
	sender := paths.NewSender(t.Context(), paths.SenderConfig{})
	defer sender.Close() //nolint:errcheck // it had no lanes
	s := &Source{
		config: SourceConfig{Refill: true}, ctx: t.Context(), sender: sender, hurried: make(chan struct{}),
		store: pages.New(100, pages.NewArena(1<<20, nil, nil)),
	}
	begin := beginning(t, &s.threads)
	first := begin()
	s.beginRefill(100)
	isNice(t, "one that was there", first, courteous)
	isNice(t, "one that begins", begin(), courteous)
}

// beginning begins threads, each until the test ends, and returns their ids.
func beginning(t *testing.T, all *threads) (begin func() int) {
	t.Helper()
	ids, end := make(chan int), make(chan struct{})
	t.Cleanup(func() { close(end) })
	return func() int {
		go func() {
			defer all.enter()()
			ids <- unix.Gettid()
			<-end
		}()
		return <-ids
	}
}

func isNice(t *testing.T, how string, id, want int) {
	t.Helper()
	raw, err := unix.Getpriority(unix.PRIO_PROCESS, id) // 20 less the nice value, getpriority(2)
	if nice := 20 - raw; err != nil || nice != want {
		t.Errorf("%s: nice %d, %v; want %d", how, nice, err, want)
	}
}
