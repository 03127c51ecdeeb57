package qemu

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
)

// What a migration of ours sets (configure, and what changes it later) is put back when it has come to nothing: with
// pause-before-switchover and a downtime limit of 1 ms none that somebody else begins would ever end. An agent that was
// started again meanwhile does not know how it was: it puts back what QEMU has by itself, where it finds the marks of
// ours. The capability "events" stays: it takes nothing from anybody.

// settings are capabilities and parameters of migrations by name, these as JSON has them.
type settings struct {
	caps   map[string]bool
	params map[string]json.RawMessage
}

// ours are the settings that are put back, with QEMU's own values, which are the same from 7.2 to 11.1
// (migration_properties of migration/options.c).
var ours = settings{
	caps: map[string]bool{
		"return-path": false, "late-block-activate": false, "xbzrle": false, "multifd": false, "auto-converge": false, "postcopy-ram": false,
		"pause-before-switchover": false, "switchover-ack": false,
	},
	params: map[string]json.RawMessage{
		"max-bandwidth": raw("134217728"), "downtime-limit": raw("300"), "avail-switchover-bandwidth": raw("0"), "announce-rounds": raw("5"),
		"multifd-channels": raw("2"), "multifd-compression": raw(`"none"`), "multifd-zlib-level": raw("1"), "multifd-zstd-level": raw("1"),
		"throttle-trigger-threshold": raw("50"), "cpu-throttle-initial": raw("20"), "cpu-throttle-increment": raw("10"),
		"max-cpu-throttle": raw("99"), "cpu-throttle-tailslow": raw("false"),
	},
}

// marks are what every migration of ours sets, and leaves beside announceRounds. An owner may have set any of them, and
// hardly all.
var marks = []string{"return-path", "late-block-activate"}

func raw(text string) json.RawMessage { return json.RawMessage(text) }

// found are those of ours that QEMU knows, as they are to be once no migration of ours is under way; left: one has left
// its own there.
func (p *Process) found(ctx context.Context) (was settings, left bool, err error) {
	var caps []capability
	if err := p.qmp.Do(ctx, "query-migrate-capabilities", nil, &caps); err != nil {
		return settings{}, false, err
	}
	params := map[string]json.RawMessage{}
	if err := p.qmp.Do(ctx, "query-migrate-parameters", nil, &params); err != nil {
		return settings{}, false, err
	}
	left = bytes.Equal(params["announce-rounds"], raw(strconv.Itoa(announceRounds))) && !slices.ContainsFunc(marks, func(name string) bool {
		return !slices.Contains(caps, capability{name, true})
	})
	was = settings{map[string]bool{}, map[string]json.RawMessage{}}
	for _, c := range caps {
		if own, is := ours.caps[c.Name]; is && left {
			was.caps[c.Name] = own
		} else if is {
			was.caps[c.Name] = c.State
		}
	}
	for name, own := range ours.params {
		if value, is := params[name]; is && left {
			was.params[name] = own
		} else if is {
			was.params[name] = value
		}
	}
	return was, left, nil
}

// remember notes how it is before a migration of ours changes it, unless that is known.
func (p *Process) remember(ctx context.Context) error {
	p.holding.Lock()
	known := p.before != nil
	p.holding.Unlock()
	if known {
		return nil
	}
	was, _, err := p.found(ctx)
	if err != nil {
		return err
	}
	p.holding.Lock()
	p.before = &was
	p.holding.Unlock()
	return nil
}

// putBack has it as it was, once no migration is under way. What cannot be had so the next one that is cancelled puts
// back: it is no reason to hold up who waits for this one's end.
func (p *Process) putBack(ctx context.Context) {
	p.holding.Lock()
	p.released = true // the brake bites no more
	before := p.before
	p.holding.Unlock()
	if before == nil {
		was, left, err := p.found(ctx)
		if err != nil || !left {
			return
		}
		before = &was
	}
	first, last := maps.Clone(before.params), maps.Clone(before.params)
	delete(first, "announce-rounds") // last: by them, with the marks, an agent that is started meanwhile knows of the others
	maps.DeleteFunc(last, func(name string, _ json.RawMessage) bool { return name != "announce-rounds" })
	caps := []capability{}
	for name, state := range before.caps {
		caps = append(caps, capability{name, state})
	}
	if len(first) > 0 && p.qmp.Do(ctx, "migrate-set-parameters", first, nil) != nil {
		return
	}
	if len(caps) > 0 && p.qmp.Do(ctx, "migrate-set-capabilities", map[string]any{"capabilities": caps}, nil) != nil {
		return
	}
	if len(last) > 0 && p.qmp.Do(ctx, "migrate-set-parameters", last, nil) != nil {
		return
	}
	p.holding.Lock()
	p.before = nil
	p.holding.Unlock()
}
