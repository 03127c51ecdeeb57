package agent

import (
	"errors"

	"godwit/agent/config"
	"godwit/agent/detour"
)

// publish puts the addresses with which the guest visits here, and which it answers for
// now, where the speaker of BGP finds them. They are gone as soon as packets for them are
// led elsewhere, or the guest has given them up. Done twice, it is done once; on error
// they are published nowhere. No disk that is full is one: nobody would publish them later.
func (a *Agent) publish(guest string) error {
	if a.config.Routes == nil {
		return nil
	}
	in := func(r config.Routes) func(map[string]*detour.Detour) {
		return func(all map[string]*detour.Detour) {
			for _, d := range all {
				if d.Guest == guest {
					d.Publish(r)
				}
			}
		}
	}
	err := a.detours.ChangeNow(guest, in(*a.config.Routes))
	if err != nil {
		err = errors.Join(err, a.detours.ChangeNow(guest, in(config.Routes{})))
	}
	return err
}
