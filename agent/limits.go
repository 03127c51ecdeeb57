package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"godwit/agent/hook"
)

// limit bounds how long something may take. Its name is in the error when it passes.
type limit struct {
	name string
	d    time.Duration
	of   string // what is done when it has not passed
}

// limits lists every one, in the order of the documentation (docs/agent.md).
var limits []limit

func named(name string, d time.Duration, of string) limit {
	l := limit{name, d, of}
	limits = append(limits, l)
	return l
}

// The limits of a migration at its source.
var (
	limitCheckHere    = named("check_here", 10*time.Second, "QEMU and the guest say what they are")
	limitCheckThere   = named("check_there", 20*time.Second, "the destination and the path are asked")
	limitAskThere     = named("ask_there", 8*time.Second, "the destination answers the check")
	limitRoundTrip    = named("round_trip", 1500*time.Millisecond, "a path answers, beside what else is tried; else its RTT is taken to be the tunnel's")
	limitAskGuest     = named("ask_guest", 5*time.Second, "the guest answers on its channel")
	limitHeard        = named("heard", 3*time.Second, "the host that the guest came from says that it has heard of its landing; else the guest is not moved on")
	limitHangUp       = named("hang_up", time.Second, "the guest answers on its channel, before it is dialled again; then twice as long, and so on")
	limitDirtyRate    = named("dirty_rate", 5*time.Second, "QEMU says how much the guest writes")
	limitSample       = named("sample", 2*time.Second, "some of the guest's memory is read, for the prediction; else that knows less")
	limitPrepareThere = named("prepare_there", 30*time.Second, "the destination has made everything ready")
	limitPrepareHere  = named("prepare_here", 15*time.Second, "this end of the tunnel stands and was tried")
	limitAskDisks     = named("ask_disks", 20*time.Second, "the destination's QEMU grants the copy of each disk")
	limitReady        = named("ready_guest", 3*time.Second, "the guest raises its spare NIC; else it does so in the handover")
	limitTryTunnel    = named("try_tunnel", 5*time.Second, "a tunnel carries a packet and its echo: one for memory first, the guest's again and again while memory is copied")
	limitFollowTicks  = named("follow_ticks", 3*time.Second, "the guest begins to count on its channel")
	limitFlip         = named("flip", 8*time.Second, "memory has come to rest, and the guest's packets take the tunnel")
	limitSettle       = named("settle_memory", 3*time.Second, "memory comes to rest, and the lanes that carry it work, before that; then it goes on all the same")
	limitUnderway     = named("underway", time.Second, "what the home of an address had sent here is here; then it is lost, and the move goes on")
	limitPause        = named("pause", 10*time.Second, "the tap is drained and the guest stopped")
	limitRelease      = named("release_answer", 5*time.Second, "the destination answers a release, before that is doubt")
	limitLanding      = named("landing", 10*time.Minute, "the destination says how far it is, before it is asked anew")
	limitLandingPoll  = named("landing_poll", 20*time.Second, "one question how far it is")
	limitLanded       = named("landed", 10*time.Second, "the destination reports how it went")
	limitCleanSource  = named("clean_source", 30*time.Second, "what the guest was here is removed")
	limitUndo         = named("undo", 30*time.Second, "one step of the way back, but for those that follow")
	limitResume       = named("resume_status", 500*time.Millisecond, "QEMU answers before its guest is continued; then its stream is cut, for which it may wait")
	limitUnready      = named("unready_guest", 3*time.Second, "the guest's spare NIC is down again, after the end")
	limitUndoThere    = named("undo_there", 700*time.Millisecond, "the destination has undone; then it is asked on in the background")
	limitUndoHeld     = named("undo_held", 3*time.Second, "the same, once packets were led there: they are sent back first; the guest runs meanwhile")
	limitExit         = named("exit", 3*time.Second, "the QEMU of a guest that has ended is gone; the outcome is told then")
	limitUndoAway     = named("undo_away", 500*time.Millisecond, "the destination sends an address here again")
	limitRefill       = named("refill", 10*time.Second, "the destination waits for pages that are missing, before it is asked anew")
	limitAborted      = named("aborted", 3*time.Second, "a migration that is called off turns back; who calls it off is answered then in any case")
	limitEndTicks     = named("end_ticks", time.Second, "the guest stops counting")
)

// The limits of a migration at its destination.
var (
	limitHas        = named("sample_known", time.Second, "what is kept here, and the guest's image, are searched for pages of the source's sample; what was not found by then counts as not there")
	limitReceive    = named("receive", 25*time.Second, "taps, tunnel and QEMU stand")
	limitStart      = named("start", 10*time.Second, "QEMU lets the guest run")
	limitStatus     = named("qemu_status", 5*time.Second, "QEMU says whether the guest runs after all")
	limitSendBack   = named("send_back", 20*time.Second, "what was made here is removed")
	limitToldBack   = named("told_back", 5*time.Second, "the source, refused the guest, has its packets come to it again; then those that wait here are sent back in any case")
	limitSentBack   = named("sent_back", 2*time.Second, "an echo has come through the tunnel, behind what was sent back; then it goes in any case")
	limitHandover   = named("handover", time.Minute, "the guest's connections are handed over, or else it keeps its old address, through the tunnel")
	limitFirstWords = named("first_words", 100*time.Millisecond, "the guest answers clients whose packets were held, before it is asked anything")
	limitChannel    = named("channel", 20*time.Second, "the guest answers on its channel after the move")
	limitFirstTick  = named("first_tick", 5*time.Second, "the guest counts where it has arrived; else its pause is not known")
	limitAnnounce   = named("announce", 2*time.Second, "QEMU tells the guest's LAN where it is")
	limitGuestStep  = named("guest_step", 15*time.Second, "the guest carries one step of the handover out, before it is tried again")
	limitTake       = named("dhcp", 45*time.Second, "a guest without a program of ours takes its next address by DHCP, each try")
	limitJoin       = named("join", joinLimit+5*time.Second, "the guest says which connections have followed")
	limitOldSoon    = named("old_nic_soon", 300*time.Millisecond, "the guest has taken what was on its way to its old NIC, before what its tap has left is led to the other")
	limitOldNIC     = named("old_nic", 3*time.Second, "it has taken the rest; then the old NIC goes down")
	limitListed     = named("listed", 3*time.Second, "the guest has listed its connections, before they leave its old address; then what became of some may be told wrongly")
	limitSurvey     = named("survey", 15*time.Second, "the guest lists its connections")
	limitNameTry    = named("name_service", 4*time.Second, "the name server takes an update, each try")
	limitRepoint    = named("repoint", 10*time.Second, "the home of an address sends it here")
	limitAskHome    = named("ask_home", 3*time.Second, "the home of addresses says which it hands over to its subnet agent")
	limitAskLed     = named("ask_led", 3*time.Second, "the host that addresses are sent to says whether it leads them on, before their home sends them further")
	limitPresence   = named("presence", 2*time.Second, "another host says what it is")
	limitGiveBack   = named("give_back", 2*time.Second, "a subnet agent gives addresses back to a host of its site, or sends them away again")
	limitEndDetour  = named("end_detour", 2*time.Second, "a tunnel's other end is asked to go")
	limitRestore    = named("restore_tunnel", 5*time.Second, "a tunnel stands again after the end of its process, or its host's reboot")
	limitInquire    = named("inquire", 5*time.Second, "the source says what became of a migration")
	limitTellTaken  = named("tell_taken", 10*time.Second, "the other host hears that a guest was taken back")
	limitWord       = named("word", 10*time.Second, "a person's word is journalled")
	limitEndGuest   = named("end_guest", 10*time.Second, "QEMU ends")
	limitAdopt      = named("adopt", 10*time.Second, "a QEMU answers that is found or adopted; one with another client never does")
	limitBoot       = named("boot", 3*time.Minute, "the guest answers on its channel after boot")
	limitGiveAgain  = named("give_again", 30*time.Second, "a guest that booted anew has what a handover gave it, each try")
	limitScrape     = named("scrape", 2*time.Second, "QEMU says for the metrics what a guest does; else that is `other`")
	_               = named("hook_blocking", hook.DefaultBlocking, "a hook answers a blocking event, if it names no `timeout`")
	_               = named("hook_informative", hook.DefaultInformative, "a hook is done with any other event, if it names no `timeout`")
)

// passed is the error of a limit.
type passed struct{ limit }

func (p *passed) Error() string { return fmt.Sprintf("limit %s of %v passed", p.name, p.d) }

// Is makes it a timeout for those who only ask that.
func (p *passed) Is(target error) bool { return target == context.DeadlineExceeded }

// on bounds ctx.
func (l limit) on(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, l.d, &passed{l})
}

// since bounds ctx by what is left of the limit for something that began then.
func (l limit) since(ctx context.Context, begun time.Time) (context.Context, context.CancelFunc) {
	return context.WithDeadlineCause(ctx, begun.Add(l.d), &passed{l})
}

// Each of a guest's connections is told of its next address and to leave the old one, and all
// of them join: an emulated guest needs some ms for each. What limits a handover is
// crowdEach for each connection, if that is more, of crowdMost at most: a peer names them.
const (
	crowdEach = 6 * time.Millisecond
	crowdMost = 20000
	// crowdSteps is how many times that takes in a whole handover.
	crowdSteps = 4
)

// forCrowd is the limit of a guest with that many connections.
func (l limit) forCrowd(connections, steps int) limit {
	l.d = max(l.d, time.Duration(steps*min(connections, crowdMost))*crowdEach)
	return l
}

// says names the limit in the error of what was done within ctx, if that is why it ended.
func says(ctx context.Context, err error) error {
	var mine, other *passed
	if err == nil || ctx.Err() == nil || !errors.As(context.Cause(ctx), &mine) || errors.As(err, &other) {
		return err
	}
	return &overdue{err, mine}
}

// overdue is what was under way when a limit passed. It keeps the kind of its error.
type overdue struct {
	err    error
	passed *passed
}

func (o *overdue) Error() string   { return fmt.Sprintf("%v (%v)", o.err, o.passed) }
func (o *overdue) Unwrap() []error { return []error{o.err, o.passed} }
