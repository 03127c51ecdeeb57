package agent

import (
	"errors"

	"godwit/agent/config"
	"godwit/netstate"
)

// publish puts the addresses with which the guest visits here, and which it answers for
// now, where the speaker of BGP finds them. They are gone as soon as packets for them are
// led elsewhere, or the guest has given them up. Done twice, it is done once; on error
// they are published nowhere.
func (a *Agent) publish(guest string) error {
	if a.config.Routes == nil {
		return nil
	}
	in := func(r config.Routes) func(map[string]*detour) {
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
		err = errors.Join(err, a.detours.change(guest, in(config.Routes{})))
	}
	return err
}

func publishIn(visiting []netstate.Visiting, r config.Routes) {
	for i := range visiting {
		if v := &visiting[i]; !v.AtHome() {
			v.Publish, v.Direct, v.Waits = r.Table, r.Direct, false
		}
	}
}
