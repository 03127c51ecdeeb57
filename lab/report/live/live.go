// Package live shows a run of the lab while it happens.
//
// On a terminal it redraws one block of at most 24 lines in place, of fewer where the
// terminal has no room for them; Log writes a line above the block. Elsewhere it prints a line for each change of phase and
// one for each second. It draws what it is told and measures nothing; time is
// that of the Status.
package live

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// Status is the run at one moment.
type Status struct {
	Title   string
	Elapsed time.Duration // since time 0; it must not go backwards
	Note    string        // what the run waits for, such as "booting 1 guest"
	Moves   []Move
	Flows   []Flow
}

// Move is one migration under way or done.
type Move struct {
	Guest, From, To string
	Phase           string        // one of migration.Phases, or the outcome
	Began           []string      // the phases that have begun, in their order, of all tries: some last a moment only
	Since           time.Duration // the phase's age
	Done            bool
	What            string // that is being copied: memory, disk …; "": nothing
	Copied, Total   int64  // bytes of it; Total 0: not known yet
	Round           int
	Mbps            float64       // of the transfer
	Remaining       time.Duration // 0: not known
	Details         string        // what else is known of the transfer, in words
}

// Flow is one flow of traffic.
type Flow struct {
	Name     string
	Mbps     float64
	RTT      time.Duration // 0: not known
	Longest  time.Duration // longest gap so far
	Waiting  time.Duration // since the last record
	Subflows int
	Lost     int64
	Corrupt  int64
	Dead     bool
}

// View draws. Its methods may be called from several goroutines.
type View struct {
	mu     sync.Mutex
	w      io.Writer
	tty    bool
	pale   bool // no colours
	rows   func() int
	closed bool
	drawn  int // lines of the block on the screen
	past   map[string]*history
	said   map[string]int // phases of each move that were printed
	second time.Duration  // of the last printed line
}

// New makes a view on w; tty says that w understands ANSI control sequences.
func New(w io.Writer, tty bool) *View {
	return &View{w: w, tty: tty, past: map[string]*history{}, said: map[string]int{}, second: -time.Hour}
}

// NoColour makes the view do without colours; what they say its words and marks say, too.
func (v *View) NoColour() { v.pale = true }

// Rows has the view ask for the terminal's rows before each block, 0 where they are not known. What has no room would leave
// its first lines behind with each redraw: no cursor goes back to what has scrolled away.
func (v *View) Rows(ask func() int) { v.rows = ask }

// colours are the sequences of block that NoColour leaves out; bold and dim letters stay.
var colours = strings.NewReplacer(red, "", green, "", yellow, "", blue, "")

// Update shows the new status.
func (v *View) Update(s Status) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return
	}
	for _, f := range s.Flows {
		v.remember(s.Elapsed, f)
	}
	if v.tty {
		v.draw(v.fit(v.block(s)))
		return
	}
	v.print(s)
}

// Log writes a line that stays: above the block on a terminal.
func (v *View) Log(line string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	line = strings.TrimRight(line, "\n") + "\n"
	if !v.tty || v.drawn == 0 {
		v.write(line)
		return
	}
	// The block is gone until the next Update draws it below the line.
	v.write(v.erase() + line)
}

// Close leaves the last block on the screen and ends the view: further updates
// do nothing.
func (v *View) Close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.tty && !v.closed {
		v.write("\x1b[?25h")
	}
	v.closed = true
	v.drawn = 0
}

// draw replaces the block. Wrapping is off meanwhile, so that a narrow terminal
// cuts lines and the count of lines stays true.
func (v *View) draw(lines []string) {
	var b strings.Builder
	b.WriteString("\x1b[?25l\x1b[?7l")
	b.WriteString(v.erase())
	for _, line := range lines {
		if v.pale {
			line = colours.Replace(line)
		}
		b.WriteString(line + "\x1b[0m\x1b[K\n")
	}
	b.WriteString("\x1b[?7h")
	v.drawn = len(lines)
	v.write(b.String())
}

// erase takes the block off the screen; the cursor stands where it began.
func (v *View) erase() string {
	if v.drawn == 0 {
		return ""
	}
	up := v.drawn
	v.drawn = 0
	return fmt.Sprintf("\x1b[%dA\r\x1b[J", up)
}

// write ignores errors: a terminal that went away must not end a run.
func (v *View) write(text string) { _, _ = io.WriteString(v.w, text) }
