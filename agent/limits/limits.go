// Package limits bounds how long things may take, by names that are in the documentation and in the errors of what was
// under way when one passed.
package limits

import (
	"context"
	"errors"
	"fmt"
	"time"

	"godwit/agent/hook"
	"godwit/migration"
)

// Limit bounds how long something may take. Its name is in the error when it passes.
type Limit struct {
	Name string
	For  time.Duration
	of   string // what is done when it has not passed
}

// all lists every one, in the order of the documentation (docs/agent.md).
var all []Limit

func named(name string, d time.Duration, of string) Limit {
	l := Limit{name, d, of}
	all = append(all, l)
	return l
}

// The limits of a migration at its source.
var (
	Ending       = named("ending", 30*time.Second, "the end of a lease is done, or what else changes the guest's addresses, before it moves; else it does not")
	CheckHere    = named("check_here", 10*time.Second, "QEMU and the guest say what they are")
	CheckThere   = named("check_there", 20*time.Second, "the destination and the path are asked")
	AskThere     = named("ask_there", 8*time.Second, "the destination answers the check")
	RoundTrip    = named("round_trip", 1500*time.Millisecond, "a path answers, beside what else is tried; else memory takes others, or it is taken to be as long as the longest that does")
	AskGuest     = named("ask_guest", 5*time.Second, "the guest answers on its channel")
	Heard        = named("heard", 3*time.Second, "the host that the guest came from says that it has heard of its landing; else the guest is not moved on")
	HangUp       = named("hang_up", time.Second, "the guest answers on its channel, before it is dialled again; then twice as long, and so on")
	DirtyRate    = named("dirty_rate", 5*time.Second, "QEMU says how much the guest writes")
	Sample       = named("sample", 2*time.Second, "some of the guest's memory is read, for the prediction; else that knows less")
	PrepareThere = named("prepare_there", 30*time.Second, "the destination has made everything ready")
	PrepareHere  = named("prepare_here", 15*time.Second, "this end of the tunnel stands and was tried")
	AskDisks     = named("ask_disks", 20*time.Second, "the destination's QEMU grants the copy of each disk")
	Ready        = named("ready_guest", 3*time.Second, "the guest raises its spare NIC; else it does so in the handover")
	Expect       = named("expect", time.Second, "the destination has its LAN know of the next address, before the guest tells clients of it; else it tells them once it has arrived")
	Answers      = named("answers", 3*time.Second, "the destination answers a call, just before the guest is stopped, or that of a second or two later; else the guest runs on, and its copy goes on")
	Tell         = named("tell", 100*time.Millisecond, "the guest tells its clients of its next address, just before it is stopped; then the switch goes on all the same")
	TryTunnel    = named("try_tunnel", 5*time.Second, "a tunnel carries a packet and its echo: one for memory first, the guest's again and again while memory is copied")
	FollowTicks  = named("follow_ticks", 3*time.Second, "the guest begins to count on its channel")
	Flip         = named("flip", 8*time.Second, "memory has come to rest, and the guest's packets take the tunnel, each try")
	Settle       = named("settle_memory", 3*time.Second, "memory comes to rest, and the lanes that carry it work, before that; then it goes on by those that do, and where none does the guest runs on, and its copy goes on")
	Underway     = named("underway", time.Second, "what the home of an address had sent here is here; then it is lost, and the move goes on")
	Pause        = named("pause", 10*time.Second, "the tap is drained and the guest stopped")
	Release      = named("release_answer", 5*time.Second, "the destination answers a release, before that is doubt")
	Landing      = named("landing", 10*time.Minute, "the destination says how far it is, before it is asked anew")
	LandingPoll  = named("landing_poll", 20*time.Second, "one question how far it is")
	Landed       = named("landed", 10*time.Second, "the destination reports how it went")
	CleanSource  = named("clean_source", 30*time.Second, "what the guest was here is removed")
	Undo         = named("undo", 30*time.Second, "one step of the way back, but for those that follow")
	Resume       = named("resume_status", 500*time.Millisecond, "QEMU answers before its guest is continued; then its stream is cut, for which it may wait")
	Unready      = named("unready_guest", 3*time.Second, "the guest's spare NIC is down again, after the end")
	UndoThere    = named("undo_there", 700*time.Millisecond, "the destination has undone; then it is asked on in the background")
	UndoHeld     = named("undo_held", 3*time.Second, "the same, once packets were led there: they are sent back first; the guest runs meanwhile")
	Exit         = named("exit", 3*time.Second, "the QEMU of a guest that has ended is gone; the outcome is told then")
	UndoAway     = named("undo_away", 500*time.Millisecond, "the destination sends an address here again")
	Refill       = named("refill", 10*time.Second, "the destination waits for pages that are missing, before it is asked anew")
	Aborted      = named("aborted", 3*time.Second, "a migration that is called off turns back; who calls it off is answered then in any case")
	EndTicks     = named("end_ticks", time.Second, "the guest stops counting")
)

// UnableAfter is when the guest declares a connection unable to follow; of a crowd, later.
const UnableAfter = 10 * time.Second

// The limits of a migration at its destination.
var (
	Has        = named("sample_known", time.Second, "what is kept here, and the guest's image, are searched for pages of the source's sample; what was not found by then counts as not there")
	Receive    = named("receive", 25*time.Second, "taps, tunnel and QEMU stand")
	Start      = named("start", 10*time.Second, "QEMU lets the guest run; in post-copy, where it waits for a page, as long as that is to come")
	Status     = named("qemu_status", 5*time.Second, "QEMU says whether the guest runs after all")
	SendBack   = named("send_back", 20*time.Second, "what was made here is removed")
	ToldBack   = named("told_back", 5*time.Second, "the source, refused the guest, has its packets come to it again; then those that wait here are sent back in any case")
	SentBack   = named("sent_back", 2*time.Second, "an echo has come through the tunnel, behind what was sent back; then it goes in any case")
	Handover   = named("handover", time.Minute, "the guest's connections are handed over, or else it keeps its old address, through the tunnel, beside its next one if it sends by that")
	FirstWords = named("first_words", 100*time.Millisecond, "the guest answers clients whose packets were held, before it is asked anything")
	Channel    = named("channel", 20*time.Second, "the guest answers on its channel after the move")
	FirstTick  = named("first_tick", 5*time.Second, "the guest counts where it has arrived; else its pause is not known")
	Announce   = named("announce", 2*time.Second, "QEMU tells the guest's LAN where it is")
	GuestStep  = named("guest_step", 15*time.Second, "the guest carries one step of the handover out, before it is tried again")
	Take       = named("dhcp", 45*time.Second, "a guest without a program of ours takes its next address by DHCP, each try")
	Join       = named("join", UnableAfter+5*time.Second, "the guest says which connections have followed, or how many have by now")
	TellAgain  = named("tell_again", 10*time.Second, "the guest tells clients again that were out of reach, and says which have followed")
	OldSoon    = named("old_nic_soon", 300*time.Millisecond, "the guest has taken what was on its way to its old NIC, before what its tap has left is led to the other")
	OldNIC     = named("old_nic", 3*time.Second, "it has taken the rest; then the old NIC goes down")
	Listed     = named("listed", 3*time.Second, "the guest has listed its connections, before they leave its old address; then what became of some may be told wrongly")
	Survey     = named("survey", 15*time.Second, "the guest lists its connections")
	NameTry    = named("name_service", 4*time.Second, "the name server takes an update, each try")
	Repoint    = named("repoint", 10*time.Second, "the home of an address sends it here")
	TryWay     = named("try_way", 2*time.Second, "a host answers by the first pair of uplinks that carry guests, before a tunnel there is made over another")
	AskHome    = named("ask_home", 3*time.Second, "the home of addresses says which it hands over to its subnet agent")
	AskLed     = named("ask_led", 3*time.Second, "another host says whether it leads addresses on: before their home sends them further, and now and then where they come from")
	Presence   = named("presence", 2*time.Second, "another host says what it is")
	GiveBack   = named("give_back", 2*time.Second, "the home of addresses, or its subnet agent, gives them back to a host of its site, or sends them away again")
	EndDetour  = named("end_detour", 2*time.Second, "a tunnel's other end is asked to go")
	Restore    = named("restore_tunnel", 5*time.Second, "a tunnel stands again after the end of its process, or its host's reboot")
	Inquire    = named("inquire", 5*time.Second, "the source says what became of a migration")
	TurnedBack = named("turned_back", time.Second, "the same, of a guest that does not arrive whole, before that is taken for the reason")
	TellTaken  = named("tell_taken", 10*time.Second, "the other host hears that a guest was taken back")
	Word       = named("word", 10*time.Second, "a person's word is journalled")
	EndGuest   = named("end_guest", 10*time.Second, "QEMU ends")
	Adopt      = named("adopt", 10*time.Second, "a QEMU answers that is found or adopted; one with another client never does")
	Boot       = named("boot", 3*time.Minute, "the guest answers on its channel after boot")
	GiveAgain  = named("give_again", 30*time.Second, "a guest that booted anew has what a handover gave it, each try")
	Scrape     = named("scrape", 2*time.Second, "QEMU says for the metrics what a guest does; else that is `other`")
	_          = named("hook_blocking", hook.DefaultBlocking, "a hook answers a blocking event, if it names no `timeout`")
	_          = named("hook_informative", hook.DefaultInformative, "a hook is done with any other event, if it names no `timeout`")
)

// passed is the error of a limit.
type passed struct{ Limit }

func (p *passed) Error() string { return fmt.Sprintf("limit %s of %v passed", p.Name, p.For) }

// Is makes it a timeout for those who only ask that.
func (p *passed) Is(target error) bool { return target == context.DeadlineExceeded }

// On bounds ctx.
func (l Limit) On(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, l.For, &passed{l})
}

// Do has f end within the limit; its error says so where that has passed.
func (l Limit) Do(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := l.On(ctx)
	defer cancel()
	return Says(ctx, f(ctx))
}

// Since bounds ctx by what is left of the limit for something that began then.
func (l Limit) Since(ctx context.Context, begun time.Time) (context.Context, context.CancelFunc) {
	return context.WithDeadlineCause(ctx, begun.Add(l.For), &passed{l})
}

// Anew bounds ctx too, by the limit from now on, and from each time that told returns.
func (l Limit) Anew(ctx context.Context, told func() time.Time) (context.Context, context.CancelFunc) {
	begun := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		for left := l.For; left > 0; {
			select {
			case <-time.After(left):
			case <-ctx.Done():
				return
			}
			last := begun
			if at := told(); at.After(begun) {
				last = at
			}
			left = l.For - time.Since(last)
		}
		cancel(&passed{l})
	}()
	return ctx, func() { cancel(nil) }
}

// Each of a guest's connections is told of its next address and to leave the old one, and all of them join: an emulated
// guest needs some ms for each. What limits a handover is crowdEach for each connection, if that is more, of crowdMost
// at most, and of none below none: the guest names them, or a peer.
const (
	crowdEach = 6 * time.Millisecond
	crowdMost = 20000
	// CrowdSteps is how many times that takes in a whole handover.
	CrowdSteps = 4
)

// ForCrowd is the limit of a guest with that many connections.
func (l Limit) ForCrowd(connections, steps int) Limit {
	l.For = max(l.For, time.Duration(steps*min(max(connections, 0), crowdMost))*crowdEach)
	return l
}

// Says names the limit in the error of what was done within ctx, if that is why it ended.
func Says(ctx context.Context, err error) error {
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

// TimedOut makes a problem of an error that tells no more than a limit's end, about what was under way.
func TimedOut(about string, err error) error {
	var late *overdue
	if errors.As(err, &late) && errors.Is(late.err, context.DeadlineExceeded) {
		return &migration.Problem{Code: migration.CodeTimeout, Text: fmt.Sprintf("%s: %v: %v", about, late.passed, late.err)}
	}
	return err
}
