package agent

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"godwit/agent/datapath"
	"godwit/agent/detour"
	"godwit/agent/disks"
	"godwit/agent/peer"
	"godwit/agent/probe"
	"godwit/agent/record"
	"godwit/agent/sample"
	"godwit/agent/talk"
	"godwit/agent/uplinks"
	"godwit/agent/ways"
	"godwit/netstate/tunnel"
	"godwit/policy"
	"godwit/transfer/encode/visit"
	"godwit/transfer/proxy"
	"godwit/vm"
	"godwit/vm/guest"
)

// forwarder is what stands between QEMU and the paths.
type forwarder interface {
	AllowSwitchover()
	Err() error
	Close() error
}

// sourceWork is what a source's effects made and later ones use. It is made anew
// by an agent that was started again.
type sourceWork struct {
	// of check
	facts        vm.Facts
	offer        talk.Offer
	accepted     talk.Acceptance
	capabilities []string        // of the program behind the guest's channel
	users        guest.Users     // of the addresses that the guest has, as it said in check
	noIPv6       bool            // see handed.LacksIPv6
	boot         string          // see care.Held.ComesIn
	home         bool            // it keeps its addresses as it goes home, and nobody asked for it
	guestPath    peer.Path       // over which the tunnel is led
	rtt          time.Duration   // to the destination, by guestPath
	trips        []time.Duration // round trips of memory's paths, in their order; nil: an earlier agent probed them
	answered     ways.Trips      // round trips of those pairs of uplinks for memory that were tried and answered
	pathMTU      int             // of the tunnel's path, bytes; 0: not known
	skew         time.Duration   // destination's clock minus ours
	chosen       bool            // mode hybrid, and nobody asked for it
	mayFollow    bool            // mode precopy, and nobody asked for it: hybrid is left

	// what check looks at meanwhile, for the prediction
	dirtyRates  <-chan int64 // bytes per second that the guest rewrites, once; nil where nobody asks
	dirtyRate   int64        // the one that was told; 0: not known
	samples     <-chan *sample.Sample
	foresight   <-chan *sample.Foresight             // of the sample; nil: there is none
	disksLooked <-chan diskLook                      // nil where no disk moves
	trains      map[[2]netip.Addr]<-chan probe.Train // by the ends of memory's paths

	// of prepare
	prepared   talk.Prepared
	tunnel     string    // this end's name
	readied    time.Time // when the guest was last asked to be ready
	tunnelUsed time.Time // when something last went through the tunnel

	// of what the destination is asked before the guest leaves, and the guest tells its clients
	answers  <-chan error // whether the destination answers; nil: it was not asked
	expected <-chan bool  // whether the destination is ready for these; nil: it was not asked
	told     bool         // they may have been told

	// of seed
	mirrors   *disks.Source // nil where no disk moves
	diskSpeed uplinks.Goodput
	qemuPart  uplinks.Part
	qemuTold  int64 // its limit, bytes per second; 0: none

	// of copy
	forward      forwarder        // nil where QEMU connects by itself
	lanes        *proxy.Source    // forward, where that is our own data path
	buffer       *datapath.Buffer // of lanes
	unfollow     func()           // ends what counts what the lanes carry; nil before there are any
	largestQueue int64            // of the lanes, bytes as they are coded
	laneKey      []byte
	visit        *visit.Writer      // memory that is kept for a return; nil: none
	endpoints    []uplinks.Endpoint // of the transfer mptcp, this host's
	window       int64              // of its connection, bytes; 0: as the kernel has it
	rounds       policy.Rounds      // of QEMU's
	memoryRate   uplinks.Goodput    // of memory
	qemuSent     *atomic.Int64      // bytes by QEMU's own connections outside tunnels; nil: it has none
	left         policy.Left        // of it, by QEMU's own transfers
	handling     policy.Handling    // of pages
	throttling   policy.Throttling
	steadiness   steadiness
	early        bool // the rest of memory follows the guest
	barely       bool // memory's rounds get no shorter, see seeBarely
	barelyTold   bool
	missing      uint64             // pages, as the refill under way began; 0: none is
	pagesResent  atomic.Bool        // that goes again, before the destination has said that the guest runs; see resendPages
	stopWatch    context.CancelFunc // ends watching for the guest's own end
	stands       *stance            // of the guest, once it was stopped
	spread       *peer.Spread       // over which the release is called; nil: over one path alone
	farewells    sync.WaitGroup     // of lanes and disks' ways that are being ended
	endMemory    func()             // stops following the last of memory

	// of a direct transfer
	memoryTunnels []tunnel.Config
	memoryMTUs    []int // of the tunnels to come, bytes, by path
	ownQueue      ownQueue

	// of what was sent
	wire     uplinks.Wire
	wireTold wireTold

	// of the guest's counter, and its landing
	endTicks func() *record.Tick // stops following it, returns the last tick
	lastTick func() *record.Tick // the last so far
	landing  landingHeard
	needed   atomic.Pointer[detour.Needed] // when it has landed

	once sync.Once // of release
}

// release lets go of what only this process holds.
func (w *sourceWork) release() {
	w.once.Do(func() {
		if w.stopWatch != nil {
			w.stopWatch()
		}
		w.stands.end()
		if w.forward != nil {
			w.forward.Close() //nolint:errcheck // it was told when it mattered
		}
		if w.visit != nil {
			w.visit.Close() //nolint:errcheck // it is given up
		}
		w.farewells.Wait()
		w.mirrors.Close()
		if w.endTicks != nil {
			w.endTicks()
		}
		w.wire.Leave()
		w.leaveMemory()
	})
}

func (w *sourceWork) leaveMemory() {
	if w.endMemory != nil {
		w.endMemory()
	}
}
