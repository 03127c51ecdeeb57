package agent

import (
	"errors"
	"fmt"

	"godwit/netstate"
)

// Routes is how the world learns the way to visiting addresses where the operator owns
// the routes: by a speaker of BGP that announces what is in a routing table of the kernel.
type Routes struct {
	Table  int  `yaml:"table"`            // of the kernel; nobody else's
	Direct bool `yaml:"direct,omitempty"` // guests' packets leave by this host's own routes, not by the tunnel
}

// The kernel's own tables end at 255; the marks of package netstate begin at 0x67000000.
const (
	firstTable = 256
	lastTable  = 0x66ffffff
)

func (r *Routes) check() error {
	if r.Table < firstTable || r.Table > lastTable {
		return fmt.Errorf("table %d; %d to %d, and nobody else's", r.Table, firstTable, lastTable)
	}
	return nil
}

// publish puts the addresses with which the guest visits here, and which it answers for
// now, where the speaker of BGP finds them. They are gone as soon as packets for them are
// led elsewhere, or the guest has given them up. Done twice, it is done once; on error
// they are published nowhere.
func (a *Agent) publish(guest string) error {
	if a.config.Routes == nil {
		return nil
	}
	in := func(r Routes) func(map[string]*detour) {
		return func(all map[string]*detour) {
			for _, d := range all {
				if d.Guest == guest {
					publishIn(d.Visiting, r)
				}
			}
		}
	}
	err := a.detours.change(guest, in(*a.config.Routes))
	if err != nil {
		err = errors.Join(err, a.detours.change(guest, in(Routes{})))
	}
	return err
}

func publishIn(visiting []netstate.Visiting, r Routes) {
	for i := range visiting {
		if v := &visiting[i]; !v.AtHome() {
			v.Publish, v.Direct, v.Waits = r.Table, r.Direct, false
		}
	}
}
