package proxy

import (
	"bytes"
	"os"
	"strconv"
	"time"
)

// spare follows how much of this machine's processors nobody uses.
type spare struct {
	read  func() (time.Duration, bool) // of all processors together, since the machine began; nil: idleTime
	at    time.Time
	idle  time.Duration
	cores float64
}

const (
	// spareEvery is how old an answer may be.
	spareEvery = 250 * time.Millisecond
	// reserve is left for those who have little to do and are waited for, such as who sends, processors: with all that
	// is spare a copy beside a busy guest sent fewer bytes, and was no faster.
	reserve = 0.25
	// tick is the unit of /proc/stat, USER_HZ (proc(5)): the same on each machine that Go runs on.
	tick = 10 * time.Millisecond
)

// now is how much that is, at most spareEvery ago, but for reserve; 0 where it is not known.
func (s *spare) now(now time.Time) float64 {
	since := now.Sub(s.at)
	if !s.at.IsZero() && since < spareEvery {
		return s.cores
	}
	read := s.read
	if read == nil {
		read = idleTime
	}
	idle, ok := read()
	if s.cores = 0; ok && !s.at.IsZero() {
		s.cores = max(0, (idle-s.idle).Seconds()/since.Seconds()-reserve)
	}
	s.at, s.idle = now, idle
	return s.cores
}

// idleTime is for how long processors of this machine had nothing to do, summed up: the fields idle and iowait
// of the first line of /proc/stat.
func idleTime() (time.Duration, bool) {
	f, err := os.Open("/proc/stat")
	if err != nil {
		return 0, false
	}
	defer f.Close()
	line := make([]byte, 256)
	n, _ := f.Read(line)
	fields := bytes.Fields(line[:n])
	if len(fields) < 6 || string(fields[0]) != "cpu" {
		return 0, false
	}
	var sum time.Duration
	for _, field := range fields[4:6] {
		ticks, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil {
			return 0, false
		}
		sum += time.Duration(ticks) * tick
	}
	return sum, true
}
