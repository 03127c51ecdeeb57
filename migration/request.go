package migration

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// leastBuffer is the least that may be asked for, bytes.
const leastBuffer = 1 << 20

// SensibleBandwidth tells whether a migration may have this limit, bit/s; 0 is none.
func SensibleBandwidth(bits int64) bool { return bits == 0 || bits >= LeastBandwidth }

// Check fills defaults and refuses what no migration can mean, of whatever guest where none is named.
func (r *Request) Check() error {
	wrong := func(format string, a ...any) error {
		of := "migrate guest " + r.Guest
		if r.Guest == "" {
			of = "migrate guests"
		}
		return &Problem{Code: CodeUsage, Text: of + ": " + fmt.Sprintf(format, a...)}
	}
	defaults := []struct {
		value *string
		what  string
		known []string
	}{
		{&r.Mode, "mode", Modes},
		{&r.Transfer, "transfer", Transfers},
		{&r.Network, "network", Networks},
		{&r.TunnelKind, "tunnel", Tunnels},
	}
	for _, d := range defaults {
		if *d.value == "" {
			*d.value = "auto"
		}
		if !slices.Contains(d.known, *d.value) {
			return wrong("%s %q is unknown; allowed: %s", d.what, *d.value, strings.Join(d.known, ", "))
		}
	}
	switch {
	case r.Downtime != 0 && r.Downtime < time.Millisecond || r.Downtime > time.Minute:
		return wrong("downtime budget of %v; between 1ms and 1m", r.Downtime)
	case !SensibleBandwidth(r.Bandwidth):
		return wrong("bandwidth of %d bit/s; at least 8kbit, or 0 for no limit", r.Bandwidth)
	case r.Buffer != 0 && r.Buffer < leastBuffer:
		return wrong("buffer of %d bytes; at least %d", r.Buffer, leastBuffer)
	case r.Buffer != 0 && strings.HasPrefix(r.Transfer, "qemu-"):
		return wrong("buffer goes with the transfers lanes and mptcp only; drop it, or name one of them")
	case r.Throttle < 0 || r.Throttle > 99:
		return wrong("throttle of %d %%; between 1 and 99, or 0 for none", r.Throttle)
	case r.Throttle > 0 && r.Mode != "precopy":
		return wrong("throttle goes with mode precopy only; drop it, or name that mode")
	case r.InsecureTransfer && !strings.HasPrefix(r.Transfer, "qemu-"):
		return wrong("insecure_transfer goes with the qemu-* transfers only; drop it, or name one")
	}
	if mode := r.Mode; (mode == "hybrid" || mode == "postcopy") && strings.HasPrefix(r.Transfer, "qemu-") {
		return wrong("mode %s goes with the transfers lanes and mptcp only; drop the transfer, or name one of them", mode)
	}
	if r.Downtime == 0 {
		r.Downtime = DefaultDowntime
	}
	return nil
}
