package wire

import "encoding/binary"

// Topic says what a control is about.
type Topic uint8

// The topics.
const (
	TopicPrologue  Topic = 1
	TopicCommand   Topic = 2
	TopicTail      Topic = 3
	TopicEnd       Topic = 4
	TopicOpaque    Topic = 5
	TopicRaw       Topic = 6
	TopicRawEnd    Topic = 7
	TopicReturn    Topic = 8
	TopicReturnEnd Topic = 9
	TopicMiss      Topic = 10
	TopicFault     Topic = 11
	TopicDiscard   Topic = 12
	TopicRun       Topic = 13
	TopicWanted    Topic = 14
	TopicOffer     Topic = 15
	TopicBytes     Topic = 16
	TopicBytesEnd  Topic = 17
	TopicAbsent    Topic = 18
)

// Limits of what a peer may announce.
const (
	MaxTail   = 512 << 20 // bytes of a tail, plain
	ShortTail = 64 << 20  // MaxTail before WithLongTail
	MaxPages  = 8192      // in one Miss or Fault
	MaxRuns   = 8192      // in one Discard or Absent
	MaxOffer  = 4096      // contents in one Offer
)

// AppendCommand appends the body of a control.
func AppendCommand(b []byte, code uint16, data []byte) []byte {
	return append(binary.BigEndian.AppendUint16(b, code), data...)
}

// ParseCommand reads what AppendCommand wrote. The data is part of body.
func ParseCommand(body []byte) (code uint16, data []byte, err error) {
	r := reader{b: body}
	code = r.u16()
	data, r.b = r.b, nil
	return code, data, r.done("command")
}

// Opaque says that frames are over and Raw follows.
type Opaque struct {
	HasLast bool
	Last    uint64 // page that is to be written last
	Reason  string
}

// AppendOpaque appends the body of a control.
func AppendOpaque(b []byte, o Opaque) []byte {
	has := byte(0)
	if o.HasLast {
		has = 1
	}
	return append(binary.BigEndian.AppendUint64(append(b, has), o.Last), o.Reason[:min(len(o.Reason), MaxText)]...)
}

// ParseOpaque reads what AppendOpaque wrote.
func ParseOpaque(body []byte) (Opaque, error) {
	r := reader{b: body}
	o := Opaque{HasLast: r.u8() == 1, Last: r.u64()}
	if len(r.b) > MaxText {
		return Opaque{}, malformed("reason of %d bytes", len(r.b))
	}
	o.Reason, r.b = string(r.b), nil
	return o, r.done("opaque")
}

// End says which frame is the last, and how long the tail is.
type End struct {
	Last uint64 // 0: there is none
	Tail uint32 // bytes, plain
}

// AppendEnd appends the body of a control.
func AppendEnd(b []byte, e End) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(b, e.Last), e.Tail)
}

// ParseEnd reads what AppendEnd wrote; the tail is at most MaxTail.
func ParseEnd(body []byte) (End, error) {
	r := reader{b: body}
	e := End{r.u64(), r.u32()}
	if e.Tail > MaxTail {
		return End{}, malformed("tail of %d bytes", e.Tail)
	}
	return e, r.done("end")
}

// Run is Count pages from First on.
type Run struct{ First, Count uint64 }

// AppendDiscard appends the body of a control: at most MaxRuns runs.
func AppendDiscard(b []byte, runs []Run) []byte {
	runs = runs[:min(len(runs), MaxRuns)]
	b = binary.BigEndian.AppendUint16(b, uint16(len(runs))) //nolint:gosec // at most MaxRuns
	for _, r := range runs {
		b = binary.BigEndian.AppendUint64(b, r.First)
		b = binary.BigEndian.AppendUint64(b, r.Count)
	}
	return b
}

// ParseDiscard reads what AppendDiscard wrote: runs ascend, and none is empty.
func ParseDiscard(body []byte) ([]Run, error) {
	r := reader{b: body}
	return r.runs("discard", uint64(r.u16()), 16, func(uint64) Run { return Run{r.u64(), r.u64()} })
}

// AppendAbsent appends the body of a control: at most MaxRuns runs, which ascend.
func AppendAbsent(b []byte, runs []Run) []byte {
	runs = runs[:min(len(runs), MaxRuns)]
	b = binary.AppendUvarint(b, uint64(len(runs)))
	at := uint64(0)
	for _, r := range runs {
		b = binary.AppendUvarint(binary.AppendUvarint(b, r.First-at), r.Count)
		at = r.First + r.Count
	}
	return b
}

// ParseAbsent reads what AppendAbsent wrote: runs ascend, and none is empty.
func ParseAbsent(body []byte) ([]Run, error) {
	r := reader{b: body}
	return r.runs("absent", r.uvarint(), 2, func(at uint64) Run { return Run{at + r.uvarint(), r.uvarint()} })
}

// AppendWanted appends the body of a control: at most MaxRuns runs; last says that no more follow.
func AppendWanted(b []byte, runs []Run, last bool) []byte {
	flag := byte(0)
	if last {
		flag = 1
	}
	return AppendDiscard(append(b, flag), runs)
}

// ParseWanted reads what AppendWanted wrote: runs ascend, and none is empty.
func ParseWanted(body []byte) (runs []Run, last bool, err error) {
	if len(body) == 0 || body[0] > 1 {
		return nil, false, malformed("wanted of %d bytes", len(body))
	}
	runs, err = ParseDiscard(body[1:])
	return runs, body[0] == 1, err
}

// Start says that the guest may run before its pages are there.
type Start struct {
	Tail    uint32 // bytes, plain
	Devices uint32 // bytes of it from its beginning
	Last    uint64 // frame that has to be there before, with all before it; 0: they are, or an older Version does not tell
}

// AppendRun appends the body of a control; as before WithLast, where no frame is told.
func AppendRun(b []byte, s Start) []byte {
	b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, s.Tail), s.Devices)
	if s.Last == 0 {
		return b
	}
	return binary.BigEndian.AppendUint64(b, s.Last)
}

// ParseRun reads what AppendRun wrote; the tail is at most MaxTail, and the devices part of it.
func ParseRun(body []byte) (Start, error) {
	r := reader{b: body}
	s := Start{Tail: r.u32(), Devices: r.u32()}
	if len(r.b) > 0 {
		if s.Last = r.u64(); s.Last == 0 {
			return Start{}, malformed("run after frame 0")
		}
	}
	if s.Tail > MaxTail || s.Devices > s.Tail {
		return Start{}, malformed("run with %d bytes of %d", s.Devices, s.Tail)
	}
	return s, r.done("run")
}

// AppendMiss appends the body of a control: pages of a frame that were not decoded, at
// most MaxPages.
func AppendMiss(b []byte, frame uint64, pages []uint64) []byte {
	return appendPages(binary.BigEndian.AppendUint64(b, frame), pages)
}

// ParseMiss reads what AppendMiss wrote.
func ParseMiss(body []byte) (frame uint64, pages []uint64, err error) {
	r := reader{b: body}
	frame = r.u64()
	pages = r.pages()
	return frame, pages, r.done("miss")
}

// AppendFault appends the body of a control: pages that are wanted now, at most MaxPages.
func AppendFault(b []byte, pages []uint64) []byte { return appendPages(b, pages) }

// ParseFault reads what AppendFault wrote.
func ParseFault(body []byte) ([]uint64, error) {
	r := reader{b: body}
	pages := r.pages()
	return pages, r.done("fault")
}

func appendPages(b []byte, pages []uint64) []byte {
	pages = pages[:min(len(pages), MaxPages)]
	b = binary.BigEndian.AppendUint16(b, uint16(len(pages))) //nolint:gosec // at most MaxPages
	for _, p := range pages {
		b = binary.BigEndian.AppendUint64(b, p)
	}
	return b
}

// Offer is what the destination has of a set of contents: of First and those after it a
// fast hash each; 0 where there is none.
type Offer struct {
	Set    uint32
	First  uint64
	Hashes []uint64
}

// All says whether it tells that all sets that do not change were offered.
func (o Offer) All() bool { return o.Set == 0 && len(o.Hashes) == 0 }

// AppendOffer appends the body of a control: at most MaxOffer contents.
func AppendOffer(b []byte, o Offer) []byte {
	hashes := o.Hashes[:min(len(o.Hashes), MaxOffer)]
	b = binary.BigEndian.AppendUint32(b, o.Set)
	b = binary.BigEndian.AppendUint64(b, o.First)
	b = binary.BigEndian.AppendUint16(b, uint16(len(hashes))) //nolint:gosec // at most MaxOffer
	for _, hash := range hashes {
		b = binary.BigEndian.AppendUint64(b, hash)
	}
	return b
}

// ParseOffer reads what AppendOffer wrote.
func ParseOffer(body []byte) (Offer, error) {
	r := reader{b: body}
	o := Offer{Set: r.u32(), First: r.u64()}
	n := int(r.u16())
	if n > MaxOffer || len(r.b) != 8*n || o.First+uint64(n) < o.First { //nolint:gosec // not negative
		return Offer{}, malformed("offer of %d contents in %d bytes", n, len(body))
	}
	o.Hashes = make([]uint64, n)
	for i := range o.Hashes {
		o.Hashes[i] = r.u64()
	}
	return o, r.done("offer")
}

// reader takes a body apart; past its end everything is zero and done says so.
type reader struct {
	b     []byte
	short bool
}

func (r *reader) take(n int) []byte {
	if n > len(r.b) {
		r.short, r.b = true, nil
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) u8() uint8 {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) u16() uint16 {
	if b := r.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (r *reader) u32() uint32 {
	if b := r.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *reader) u64() uint64 {
	if b := r.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.short, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) name() string {
	n := int(r.u8())
	if n > maxName {
		r.short = true
		return ""
	}
	return string(r.take(n))
}

func (r *reader) pages() []uint64 {
	n := int(r.u16())
	if n > MaxPages || 8*n > len(r.b) {
		r.short = true
		return nil
	}
	out := make([]uint64, n)
	for i := range out {
		out[i] = r.u64()
	}
	return out
}

// runs are the last of what there is: n, of least bytes each; next reads one, and is told where the one before ended.
func (r *reader) runs(what string, n, least uint64, next func(at uint64) Run) ([]Run, error) {
	if n > MaxRuns || least*n > uint64(len(r.b)) {
		return nil, malformed("%s of %d runs in %d bytes", what, n, len(r.b))
	}
	out, at := make([]Run, n), uint64(0)
	for i := range out {
		run := next(at)
		if run.First < at || run.Count == 0 || run.First+run.Count < run.First {
			return nil, malformed("%s of %d pages from %d", what, run.Count, run.First)
		}
		out[i], at = run, run.First+run.Count
	}
	return out, r.done(what)
}

func (r *reader) done(what string) error {
	if r.short || len(r.b) > 0 {
		return malformed("%s: wrong length", what)
	}
	return nil
}
