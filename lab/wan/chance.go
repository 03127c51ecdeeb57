package wan

import (
	"math"
	"math/rand/v2"
	"time"
)

// nextLoss draws how many packets pass before the next is lost, each lost with
// probability loss on its own: a geometric distribution.
func nextLoss(loss float64, random *rand.Rand) int {
	if loss <= 0 {
		return math.MaxInt
	}
	if loss >= 1 {
		return 0
	}
	n := math.Log(1-random.Float64()) / math.Log1p(-loss)
	return int(min(n, math.MaxInt32))
}

// stride is how often the jitter takes a new value. Between two of them it is linear,
// so that packets rarely have to wait for each other to keep their order.
const stride = 10 * time.Millisecond

// wander is a random function of time, evenly distributed within ±1 at the strides.
type wander struct {
	random      *rand.Rand
	from        time.Duration // the stride that left belongs to
	left, right float64
	begun       bool
}

// at returns the jitter at t, within ± size. t never goes back by more than a stride.
func (w *wander) at(t time.Duration, size time.Duration) time.Duration {
	if size == 0 {
		return 0
	}
	step := max(stride, 4*size)
	if !w.begun || t >= w.from+2*step {
		w.begun = true
		w.from, w.left, w.right = t, w.draw(), w.draw()
	} else if t >= w.from+step {
		w.from, w.left, w.right = w.from+step, w.right, w.draw()
	}
	part := min(max(float64(t-w.from)/float64(step), 0), 1)
	return time.Duration(float64(size) * (w.left + (w.right-w.left)*part))
}

func (w *wander) draw() float64 { return 2*w.random.Float64() - 1 }
