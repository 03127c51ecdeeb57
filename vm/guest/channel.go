package guest

import (
	"context"
	"errors"
	"net/netip"
	"time"
)

// ErrUnsupported is what a channel cannot do for lack of our own program in the guest.
var ErrUnsupported = errors.New("not without godwit-guest in the guest")

// Channel is what an agent asks of the inside of a guest; the methods are those of
// Client, which speaks to our own program there. Package qga speaks to the QEMU guest
// agent instead and cannot do all of it: the rest matches ErrUnsupported, or is empty.
type Channel interface {
	Info(ctx context.Context) (Info, error)
	Configure(ctx context.Context, p Configure) (Configured, error)
	Ready(ctx context.Context, p Configure) error
	Tell(ctx context.Context, mac string) error
	AwaitJoin(ctx context.Context, p AwaitJoin) (Joins, error)
	TellAgain(ctx context.Context, p TellAgain) (Joins, error)
	MakeMain(ctx context.Context, mac string) error
	Retire(ctx context.Context, p Retire) error
	Users(ctx context.Context, addrs ...netip.Addr) (Users, error)
	Connections(ctx context.Context, addrs ...netip.Addr) (Connections, error)
	Listeners(ctx context.Context, addrs ...netip.Addr) (Listeners, error)
	DropAddress(ctx context.Context, addrs ...netip.Addr) error
	Ticks(ctx context.Context, every time.Duration) error
	Run(ctx context.Context, lines ...string) error
	// Call carries out a method by its name, with parameters and result as JSON has
	// them. It is for those who only pass calls on.
	Call(ctx context.Context, method string, params, result any) error
	Events() <-chan Event
	Done() <-chan struct{}
	Close() error
}

var _ Channel = (*Client)(nil)
