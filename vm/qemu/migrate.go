package qemu

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"godwit/vm"
)

const (
	// fastest is a bandwidth that limits nothing, in bytes per second.
	fastest = int64(1) << 40
	// longest is the highest downtime limit that QEMU takes.
	longest = 2000 * time.Second
	// defaultDowntime is QEMU's default.
	defaultDowntime = 300 * time.Millisecond
	// lookWhenSent is bytes per second: with a downtime limit of 1 ms less than a page, so QEMU
	// looks at which pages are dirty only when none that it knows of is left to send. Looking
	// earlier it clears marks, and where it finds no other page forgets to have TCG watch them
	// again (physical_memory_sync_dirty_bitmap): what the guest writes there after the page was
	// sent is lost. Stop needs the fence of the hold then: all that was seen dirty goes before.
	lookWhenSent = int64(1_000_000)
	// startWait bounds the time from the command to the first byte.
	startWait = 30 * time.Second
)

// ErrCompleted is a migration that was to be cancelled but had completed.
var ErrCompleted = errors.New("migration has completed already")

// PrepareIncoming sets up a waiting QEMU like the source will be, and makes it listen on
// opts.URI. On success connections are accepted. On error it may be asked again. A
// migration that fails leaves the process alive (QEMU 9.1 and later), waiting for Quit.
func (p *Process) PrepareIncoming(ctx context.Context, opts vm.MigrateOptions) error {
	if err := p.configure(ctx, opts); err != nil {
		return fmt.Errorf("prepare incoming migration: %w", err)
	}
	args := map[string]any{"uri": opts.URI}
	if p.Version().AtLeast(9, 1) {
		args["exit-on-error"] = false
	}
	if err := p.qmp.Do(ctx, "migrate-incoming", args, nil); err != nil {
		return fmt.Errorf("prepare incoming migration: %w", err)
	}
	p.fetching.Go(func() { _ = p.fetchTranslated() }) // it is for speed alone
	return nil
}

// Migrate starts an outgoing migration and returns when QEMU is connected and sends. On
// error none is under way.
func (p *Process) Migrate(ctx context.Context, opts vm.MigrateOptions) error {
	if err := p.migrate(ctx, opts); err != nil {
		return fmt.Errorf("start migration to %s: %w", opts.URI, err)
	}
	return nil
}

func (p *Process) migrate(ctx context.Context, opts vm.MigrateOptions) error {
	if opts.Postcopy {
		return errors.New("post-copy: only the destination can be told")
	}
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	if err := p.cleanedUp(ctx); err != nil {
		return err
	}
	if err := p.remember(ctx); err != nil {
		return err
	}
	if err := p.configure(ctx, opts); err != nil {
		return err
	}
	p.holding.Lock()
	p.held, p.released, p.limit = "", false, bandwidth(opts.MaxBandwidth)
	p.asked = true
	p.pauses, p.looks, p.keeps, p.told = opts.HoldSwitchover, opts.LooksAtOnce, opts.KeepsLimit, opts.Looks
	if opts.HoldSwitchover {
		p.held = p.hold()
	}
	held := p.held
	p.holding.Unlock()

	events := p.qmp.Events(ctx)
	if err := p.sendTo(ctx, opts); err != nil {
		if ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) { // it may have begun all the same
			if cancelled := p.CancelMigration(context.WithoutCancel(ctx)); cancelled != nil {
				err = fmt.Errorf("%w; %w", err, cancelled)
			}
		}
		return err
	}
	progress, err := p.until(ctx, events, func(s vm.MigrationStatus) bool {
		return s != vm.Setup && s != vm.MigrationNone && s != ""
	})
	if err == nil && (progress.Status == vm.Failed || progress.Status == vm.Cancelled) {
		return ended(progress)
	}
	if err != nil {
		return errors.Join(err, p.CancelMigration(context.WithoutCancel(ctx)))
	}
	if held == vm.HoldLowBandwidth {
		go p.brake()
	}
	return nil
}

// outStream is by which name QEMU is lent the connection that it sends memory by.
const outStream = "godwit-out"

// sendTo tells QEMU where to send memory. Channels it opens itself: they cannot be lent.
func (p *Process) sendTo(ctx context.Context, opts vm.MigrateOptions) error {
	uri := opts.URI
	if socket, is := strings.CutPrefix(uri, "unix:"); is && !opts.Multifd {
		lent, err := p.lend(ctx, outStream, socket)
		if err != nil {
			return err
		}
		if lent {
			uri = "fd:" + outStream
		}
	}
	err := p.qmp.Do(ctx, "migrate", map[string]any{"uri": uri}, nil)
	if err != nil && uri != opts.URI {
		p.takeBack(ctx, outStream)
	}
	return err
}

// configure sets everything that a migration depends on, so that nothing is left over
// from one before.
func (p *Process) configure(ctx context.Context, opts vm.MigrateOptions) error {
	params, err := parameters(opts)
	if err != nil {
		return err
	}
	params["announce-rounds"] = announceRounds
	if opts.HoldSwitchover {
		params["downtime-limit"] = 1
	}
	if p.Version().AtLeast(8, 2) {
		params["avail-switchover-bandwidth"] = 0
		if opts.HoldSwitchover {
			params["avail-switchover-bandwidth"] = lookWhenSent
		}
	}
	if opts.Multifd && p.Version().AtLeast(9, 0) {
		is, err := p.inFile(ctx)
		if err != nil {
			return err
		}
		if is {
			params["zero-page-detection"] = zerosByOne
		}
	}
	caps := []capability{
		{"events", true},
		{"return-path", true}, // without it QEMU completes when its bytes are swallowed
		{"late-block-activate", true},
		{"xbzrle", opts.Xbzrle},
		{"multifd", opts.Multifd},
		{"auto-converge", opts.Throttles},
		{"postcopy-ram", opts.Postcopy},
		{"pause-before-switchover", opts.HoldSwitchover},
	}
	if p.hold() == vm.HoldAck {
		caps = append(caps, capability{"switchover-ack", opts.HoldSwitchover})
	}
	if opts.Throttles {
		maps.Copy(params, throttle(leastThrottle, false))
	}
	args := map[string]any{"capabilities": caps}
	if err := p.qmp.Do(ctx, "migrate-set-capabilities", args, nil); err != nil {
		return err
	}
	return p.qmp.Do(ctx, "migrate-set-parameters", params, nil)
}

type capability struct {
	Name  string `json:"capability"`
	State bool   `json:"state"`
}

// parameters returns the arguments of migrate-set-parameters (qapi/migration.json).
func parameters(opts vm.MigrateOptions) (map[string]any, error) {
	downtime := opts.DowntimeLimit
	if downtime == 0 {
		downtime = defaultDowntime
	}
	switch {
	case opts.MaxBandwidth < 0:
		return nil, fmt.Errorf("bandwidth %d: negative", opts.MaxBandwidth)
	case downtime < time.Millisecond || downtime > longest:
		return nil, fmt.Errorf("downtime limit %v: not 1ms to %v", downtime, longest)
	case opts.Multifd && opts.Xbzrle:
		return nil, errors.New("xbzrle and multifd: only one of them at a time")
	}
	params := map[string]any{
		"max-bandwidth":  bandwidth(opts.MaxBandwidth),
		"downtime-limit": downtime.Milliseconds(),
	}
	compression := opts.Compression
	if compression == "" {
		compression = "none"
	}
	if !opts.Multifd {
		if compression != "none" {
			return nil, fmt.Errorf("compression %s: needs multifd", compression)
		}
		return params, nil
	}
	channels, level := opts.Channels, opts.CompressionLevel
	if channels == 0 {
		channels = 2
	}
	if level == 0 {
		level = 1
	}
	if channels < 1 || channels > 255 {
		return nil, fmt.Errorf("%d multifd channels: not 1 to 255", channels)
	}
	params["multifd-channels"] = channels
	params["multifd-compression"] = compression
	switch compression {
	case "none":
	case "zstd", "zlib":
		params["multifd-"+compression+"-level"] = level
	default:
		return nil, fmt.Errorf("compression %q: not zstd, zlib or none", compression)
	}
	return params, nil
}

func bandwidth(bytesPerSecond int64) int64 {
	if bytesPerSecond == 0 {
		return fastest
	}
	return bytesPerSecond
}

// SetBandwidth changes the rate of sending, in bytes per second, also while a migration
// runs; 0 is the fastest there is.
func (p *Process) SetBandwidth(ctx context.Context, bytesPerSecond int64) error {
	p.holding.Lock()
	p.limit = bandwidth(bytesPerSecond)
	limit := p.limit
	p.holding.Unlock()
	return p.qmp.Do(ctx, "migrate-set-parameters", map[string]any{"max-bandwidth": limit}, nil)
}
