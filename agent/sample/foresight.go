package sample

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"math"
	"runtime"
	"time"

	"godwit/internal/clock"
	"godwit/transfer/encode"
	"godwit/transfer/pages"
)

// Coding is how a transfer packs pages.
type Coding int

// The codings.
const (
	AsIs   Coding = iota // as they are
	Zstd                 // by zstd alone, level 1
	Xbzrle               // as QEMU's xbzrle does: a page that was sent by what changed of it, where that is less, and else as it is
	Best                 // as our own data path does: what is best over the link, and a page that was sent by what changed of it
)

// Foresight is what a sample of the guest's memory tells of its move.
type Foresight struct {
	found
	*Sample
	coding Coding
	level  encode.Level
	then   [][]byte // the sample's pages at a look between; nil: there was none
	at2    time.Time
}

type found struct {
	share   float64 // of memory that is not zeros
	known   float64 // share of that which the destination has already
	ratio   float64 // bytes on the wire for a byte of the rest
	again   float64 // the same of what is written again
	written float64 // share of memory that is written per second
	writes  float64 // the same, a page as often as it is written; 0: not known
	fastest float64 // bytes of what is not zeros per second, at most, that a processor reads, names and codes; 0: not known
	area    float64 // share of memory that is written again and again; 0: not known
}

// coderShare is what a thread that codes is taken to get of a processor.
const coderShare = 0.5

// Foresee codes what of the sample the destination has not, for a link of so many bytes per second; has says which of
// the pages it has, nil: none.
func (s *Sample) Foresee(coding Coding, link float64, has []bool) *Foresight {
	f := &Foresight{Sample: s, coding: coding, found: found{share: float64(s.content) / float64(max(1, s.looked)), ratio: 1, again: 1}}
	var rest [][]byte
	for i, page := range s.pages {
		if i >= len(has) || !has[i] {
			rest = append(rest, page)
		}
	}
	f.known = float64(len(s.pages)-len(rest)) / float64(max(1, len(s.pages)))
	switch coding {
	case Best:
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		f.level = encode.Best(rest, link, coderShare, clock.ThreadTime)
	case Zstd:
		f.level = encode.Zstd1
	default:
		return f
	}
	began := clock.ThreadTime()
	f.ratio = ratioOf(encode.Foresee(rest, nil, f.level), 1)
	if f.coding == Best {
		f.fastest = s.atMost(began)
	}
	f.again = f.ratio
	return f
}

// atMost is how fast a thread has been since began, once it has also done with each page of the sample what is done
// with each that moves: its SHA-256, by which the destination knows it.
func (s *Sample) atMost(began time.Duration) float64 {
	for _, page := range s.pages {
		_ = sha256.Sum256(page)
	}
	took := (clock.ThreadTime() - began).Seconds()
	if took <= 0 {
		return 0
	}
	return float64(len(s.pages)*pages.Size) / took
}

func ratioOf(c encode.Counts, otherwise float64) float64 {
	if c.In == 0 {
		return otherwise
	}
	return float64(c.Out) / float64(c.In)
}

// look looks at the sample's pages again, once the look before is old enough to tell something.
func (f *Foresight) look(ctx context.Context, before time.Time) ([][]byte, error) {
	clock.Sleep(ctx, leastBetween-time.Since(before))
	now, err := f.memory.Peek(ctx, f.numbers)
	for i := range now {
		if isZero(now[i]) {
			now[i] = zeroPage[:]
		}
	}
	return now, err
}

// LookBetween is for two times in which the guest writes. How much it writes is known without it.
func (f *Foresight) LookBetween(ctx context.Context) {
	if then, err := f.look(ctx, f.at); err == nil {
		f.then, f.at2 = then, time.Now()
	}
}

// LookAgain finds out what of the sample was written, and what that costs. Which pages were written in the first and in
// the second half of the time, and which in both, tells how many there are that are written again and again (Lincoln
// and Petersen's estimate, as Chapman has it, 1951): the more of them were seen twice the fewer there are.
func (f *Foresight) LookAgain(ctx context.Context) error {
	now, err := f.look(ctx, later(f.at, f.at2))
	took := time.Since(f.at).Seconds()
	if err != nil {
		return err
	}
	then := f.then
	if then == nil {
		then = f.pages
	}
	var first, second, both float64
	for i := range now {
		switch one, two := !bytes.Equal(f.pages[i], then[i]), !bytes.Equal(then[i], now[i]); {
		case one && two:
			both++
		case one:
			first++
		case two:
			second++
		}
	}
	written, of := first+second+both, f.share/float64(max(1, len(now)))
	f.written = of * written / took
	if f.then != nil {
		area := max(written, (first+both+1)*(second+both+1)/(both+1)-1)
		f.area, f.writes = of*area, of*area*often((first+second+2*both)/(2*area+1))/(took/2)
	}
	switch f.coding {
	case Best:
		f.again = ratioOf(encode.Foresee(now, f.pages, f.level), f.ratio)
	case Xbzrle:
		f.again = ratioOf(byXbzrle(now, f.pages), f.ratio)
	}
	return nil
}

// mostOften is how often a page is taken to have been written at most of which each look finds that it was.
const mostOften = 3

// often is how often any of some pages was written if such a share of them was at all, as each is as likely as another.
func often(share float64) float64 { return min(mostOften, -math.Log1p(-share)) }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Basis is what a prediction knows of the guest's memory, by a sample.
type Basis struct {
	Bytes     int64   `json:"bytes"`      // altogether, ROMs and frame buffers included
	Content   int64   `json:"content"`    // that are not zeros
	Known     int64   `json:"known"`      // of these: that the destination has already
	Ratio     float64 `json:"ratio"`      // bytes sent for a byte of the rest
	DirtyRate int64   `json:"dirty_rate"` // bytes per second that the guest writes
	Written   int64   `json:"written"`    // bytes to which it writes that again and again; 0: not known
	Again     float64 `json:"again"`      // bytes sent for a byte that it writes
	Fastest   int64   `json:"fastest"`    // bytes of content per second that are read and coded at most; 0: not known
	Writes    int64   `json:"-"`          // as DirtyRate, but each page as often as it is written; 0: not known
}

// Basis is what was found, in bytes; dirty is what QEMU says that the guest writes, 0: nothing.
func (f *Foresight) Basis(dirty int64) *Basis {
	all := float64(f.memory.Pages() * pages.Size)
	return &Basis{
		Bytes: int64(all), Content: int64(all * f.share), Known: int64(all * f.share * f.known), Ratio: f.ratio,
		DirtyRate: cmp.Or(dirty, int64(all*f.written)), Written: int64(all * f.area), Writes: int64(all * f.writes), Again: f.again, Fastest: int64(f.fastest),
	}
}
