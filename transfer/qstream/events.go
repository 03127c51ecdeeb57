package qstream

import (
	"fmt"
	"slices"
)

// Event is what a Parser finds: *Prologue, *Page, *RoundEnd, *Command, *End, *Tail or
// *Opaque. It and what it points to are valid until the next call of Next; a *Prologue stays
// valid.
type Event interface{ event() }

// Prologue is the first event: all until the end of the START of "ram".
type Prologue struct {
	// Head is the stream from its first byte until START, exactly: header, CONFIGURATION,
	// commands.
	Head     []byte
	Machine  string    // machine type, such as pc-q35-10.0
	Commands []Command // those in Head; Command.At says where
	Section  uint32    // id of the section "ram"
	Instance uint32    // and its instance
	Blocks   Blocks
}

// ReturnPath says whether the source asked for a return path. Without one it counts a
// migration as completed once it has written it.
func (p *Prologue) ReturnPath() bool { return p.index(OpenReturnPath) >= 0 }

// Advised says whether the source advised post-copy of RAM, and so may go over to it itself.
func (p *Prologue) Advised() bool {
	i := p.index(PostcopyAdvise)
	return i >= 0 && len(p.Commands[i].Data) > 0
}

// index returns which of Commands is the first of a kind; -1 if none is.
func (p *Prologue) index(code CommandCode) int {
	return slices.IndexFunc(p.Commands, func(c Command) bool { return c.Code == code })
}

// Page is one page's content as of now.
type Page struct {
	Number uint64 // less than Blocks.Pages()
	Zero   bool   // all its bytes are 0; Data is nil
	Data   []byte // PageSize bytes in the parser's buffer: copy what is to be kept
	End    bool   // it is in END: QEMU holds its big lock until all that it writes is read
}

// RoundEnd is the end of a PART. QEMU writes several in each of its rounds, as it writes
// for 50 ms at most; nothing in the stream tells where a round of its own ends.
type RoundEnd struct{}

// End is the end of RAM: no page follows, the tail does.
type End struct{}

// Tail is a piece of what follows End, as soon as it is read.
type Tail struct {
	Data []byte
	// Last says that the tail ends with this piece. Next returns io.EOF from then on, and
	// reads no more.
	Last bool
	// Devices is, with Last, how many bytes of the whole tail are the devices' sections:
	// what is before EOF.
	Devices int64
	// Whole is, with Last, the whole tail.
	Whole []byte
}

// Opaque is a piece of a stream that cannot be taken apart any more, in order and without
// gaps, until the reader's end. It begins between two sections.
//
// Whoever wrote pages in another order has to write LastPage last, in its newest version,
// before the first piece: pages in it may say "the same block as before", and QEMU keeps
// that over sections.
type Opaque struct {
	Data []byte
	// Reason says what was met, such as `section "virtio-mem-early"`.
	Reason string
	// Head says that the stream became opaque before Prologue: Data begins with the
	// stream's first byte, and there are no blocks.
	Head bool
	// LastPage is the page that came last before, if HasLast.
	LastPage uint64
	HasLast  bool
}

func (*Prologue) event() {}
func (*Page) event()     {}
func (*RoundEnd) event() {}
func (*Command) event()  {}
func (*End) event()      {}
func (*Tail) event()     {}
func (*Opaque) event()   {}

// CommandCode is the kind of a Command (QEMU migration/savevm.c, enum qemu_vm_cmd).
type CommandCode uint16

// The commands of QEMU up to 10.0.
const (
	OpenReturnPath  CommandCode = 1
	Ping            CommandCode = 2  // be32; answered with PONG
	PostcopyAdvise  CommandCode = 3  // be64 page sizes or'ed, be64 target's page size; or nothing
	PostcopyListen  CommandCode = 4  // refused
	PostcopyRun     CommandCode = 5  // refused
	PostcopyDiscard CommandCode = 6  // refused
	Packaged        CommandCode = 7  // refused
	EnableCOLO      CommandCode = 8  // refused
	PostcopyResume  CommandCode = 9  // refused
	RecvBitmap      CommandCode = 10 // refused
	SwitchoverStart CommandCode = 11 // the guest is stopped, END is next; QEMU 10.0 and later
)

var commandNames = [...]string{
	OpenReturnPath: "OPEN_RETURN_PATH", Ping: "PING", PostcopyAdvise: "POSTCOPY_ADVISE",
	PostcopyListen: "POSTCOPY_LISTEN", PostcopyRun: "POSTCOPY_RUN",
	PostcopyDiscard: "POSTCOPY_RAM_DISCARD", Packaged: "PACKAGED", EnableCOLO: "ENABLE_COLO",
	PostcopyResume: "POSTCOPY_RESUME", RecvBitmap: "RECV_BITMAP", SwitchoverStart: "SWITCHOVER_START",
}

func (c CommandCode) String() string {
	if int(c) < len(commandNames) && c != 0 {
		return commandNames[c]
	}
	return fmt.Sprintf("command %d", uint16(c))
}

// Command is a command of the source to the destination: an event where it stands between
// two sections, and part of Prologue where it stands before START.
type Command struct {
	Code CommandCode
	Data []byte
	At   int // in a Prologue: where it begins in Head
}

// RefusedError is a stream that uses something which a proxy cannot serve. Turned off at
// the source, the same migration can be tried again.
type RefusedError struct {
	What string // in the words of QEMU's capabilities where it has one, such as "xbzrle"
}

func (e *RefusedError) Error() string {
	return "migration stream uses " + e.What + ", which is not supported: turn it off at the source"
}
