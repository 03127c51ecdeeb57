package wan

import "context"

// Emulator makes two devices behave like a link. Its methods may be called from
// several goroutines.
type Emulator interface {
	// Set changes the link at once; on failure it is as before.
	Set(Link) error
	// Counters returns what passed and what was lost since the link was made. When
	// the link is gone it returns the last that is known, and an error.
	Counters() (Counters, error)
	// Close removes both devices and returns when they are gone. The second call
	// does nothing.
	Close() error
	// Kind is "netem" or "user".
	Kind() string
}

// Start makes a link by netem where the kernel has it, else in user space. Devices
// of both kinds take routes without a next hop. seed makes loss and jitter of a link
// in user space repeatable.
func Start(ctx context.Context, a, b End, link Link, seed uint64) (Emulator, error) {
	if HaveNetem() {
		return StartNetem(ctx, a, b, link)
	}
	return StartUser(ctx, a, b, link, seed)
}
