package hook

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"godwit/internal/oneline"
)

const (
	// keepFirst and keepLast are what is kept of a hook's output, bytes.
	keepFirst = 4 << 10
	keepLast  = 4 << 10
	// lineMost bounds the line that an error shows, bytes.
	lineMost = 200
	// pipeHolds is what a pipe of the kernel has room for, bytes.
	pipeHolds = 64 << 10
)

// output keeps the beginning and the end of what is written to it.
type output struct {
	mu    sync.Mutex
	first []byte
	tail  []byte
	total int64
}

// Write takes everything.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(p)
	o.total += int64(n)
	if room := keepFirst - len(o.first); room > 0 {
		take := min(room, len(p))
		o.first, p = append(o.first, p[:take]...), p[take:]
	}
	if len(p) >= keepLast {
		o.tail = append(o.tail[:0], p[len(p)-keepLast:]...)
		return n, nil
	}
	if over := len(o.tail) + len(p) - keepLast; over > 0 {
		o.tail = append(o.tail[:0], o.tail[over:]...)
	}
	o.tail = append(o.tail, p...)
	return n, nil
}

// follow reads what a hook says. When it has ended, ended reads what it had said by then, and
// leaves what others have to say who have its output open.
func (o *output) follow(said *os.File) (ended func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		io.Copy(o, said) //nolint:errcheck // it ends by its deadline, or with the hook
	}()
	return func() {
		said.SetReadDeadline(time.Now()) //nolint:errcheck // a pipe has deadlines
		<-done
		said.SetReadDeadline(time.Time{}) //nolint:errcheck // as above
		pipe, err := said.SyscallConn()
		if err != nil {
			return
		}
		rest := make([]byte, pipeHolds)
		pipe.Read(func(fd uintptr) bool { //nolint:errcheck // which says nothing of what is there
			if n, err := syscall.Read(int(fd), rest); err == nil {
				o.Write(rest[:n]) //nolint:errcheck // it takes everything
			}
			return true
		})
	}
}

// text is what was kept, with a word on what was not.
func (o *output) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	gap := o.total - int64(len(o.first)+len(o.tail))
	if gap == 0 {
		return strings.TrimSpace(string(o.first) + string(o.tail))
	}
	return fmt.Sprintf("%s\n[%d bytes left out]\n%s", o.first, gap, strings.TrimSpace(string(o.tail)))
}

// last is the last line that has words, fit for an error.
func (o *output) last() string {
	lines := strings.Split(o.text(), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if line := oneLine(lines[i]); line != "" {
			return line
		}
	}
	return ""
}

// oneLine makes foreign words fit for an error: printable, and not long.
func oneLine(s string) string {
	s = strings.TrimSpace(oneline.Of(s))
	if len(s) > lineMost {
		s = strings.ToValidUTF8(s[:lineMost], "") + "…"
	}
	return s
}
