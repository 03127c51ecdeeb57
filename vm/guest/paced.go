package guest

import (
	"bytes"
	"io"
	"time"
)

// A guest may speak without end, and each line of it is taken apart by the agent of its host, which others need: what
// it says is read at a rate. A line counts as so many bytes more; what guests have to say at once, such as thousands of
// connections, is far below the first that are free.
const (
	pacedRate = 16 << 20 // bytes per second
	pacedFree = 64 << 20 // bytes, of one that was silent for long
	pacedLine = 4 << 10  // bytes
)

// paced reads from a guest at that rate.
type paced struct {
	from io.Reader
	left int // bytes
	at   time.Time
}

// Paced reads what a guest says no faster than guests speak.
func Paced(from io.Reader) io.Reader { return &paced{from: from, left: pacedFree, at: time.Now()} }

func (p *paced) Read(b []byte) (int, error) {
	n, err := p.from.Read(b)
	now := time.Now()
	since := min(now.Sub(p.at), pacedFree/pacedRate*time.Second)
	p.left = min(p.left+int(since.Seconds()*pacedRate), pacedFree) - n - pacedLine*bytes.Count(b[:n], []byte{'\n'})
	if p.at = now; p.left < 0 {
		time.Sleep(time.Duration(-p.left) * time.Second / pacedRate)
	}
	return n, err
}
