package tunnel

import (
	"encoding/hex"
	"fmt"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// A host whose clock was set back cannot begin a session of WireGuard: the other end takes no handshake that is dated
// before the last one (its paper, §5.1), for as long as the clock was set back by. So may one that boots by a clock
// that is ahead, and is set right later. The other end can begin one, and does so when it has something to send; a
// guest that only answers has not. So each end of a tunnel that stands for a while sends something now and then: what
// waits at the other is on its way by then.

const (
	// aliveEvery is how often, as WireGuard's own documentation advises for other ends that are forgotten.
	aliveEvery = 25 * time.Second
	// aliveAfter is how long a tunnel carries nothing but what it is for: as it begins, its ends would cross.
	aliveAfter = time.Minute
)

// keepAlive has the tunnel send something now and then, from now on. It may be called again.
func (k *keeper) keepAlive() error {
	if k.config.Kind != WireGuard {
		return nil
	}
	if p, ok := k.carrier.(inProcess); ok {
		return p.dev.IpcSet(fmt.Sprintf("public_key=%s\nupdate_only=true\npersistent_keepalive_interval=%d\n",
			hex.EncodeToString(k.config.PeerKey[:]), aliveEvery/time.Second))
	}
	w, err := wgctrl.New()
	if err != nil {
		return fmt.Errorf("open wireguard: %w", err)
	}
	defer w.Close()
	every := aliveEvery
	return w.ConfigureDevice(k.config.Name, wgtypes.Config{
		Peers: []wgtypes.PeerConfig{{PublicKey: k.config.PeerKey, UpdateOnly: true, PersistentKeepaliveInterval: &every}},
	})
}
