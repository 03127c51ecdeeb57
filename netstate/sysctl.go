package netstate

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path"
	"strings"
)

// loose stands for an rp_filter that lets asymmetric packets in: 0 or 2. The
// kernel takes the larger of all and the device (Documentation/networking/ip-sysctl).
const loose = "loose"

// A sysctl is a value below /proc/sys/net that must hold.
type sysctl struct {
	path  string
	value string
}

// sysctls lists what forwarding between bridge and tunnel for addr needs.
// proxy_delay 0: an answer for another's address otherwise waits up to 0.8 s.
func sysctls(bridge, tunnel string, addr netip.Addr) []resource {
	if addr.Is4() {
		return []resource{
			sysctl{"ipv4/conf/" + bridge + "/forwarding", "1"},
			sysctl{"ipv4/conf/" + tunnel + "/forwarding", "1"},
			sysctl{"ipv4/conf/" + bridge + "/rp_filter", loose},
			sysctl{"ipv4/conf/" + tunnel + "/rp_filter", loose},
			sysctl{"ipv4/neigh/" + bridge + "/proxy_delay", "0"},
		}
	}
	return []resource{
		sysctl{"ipv6/conf/" + bridge + "/disable_ipv6", "0"},
		sysctl{"ipv6/conf/" + tunnel + "/disable_ipv6", "0"},
		acceptRA{}, // before it forwards, and after it did
		sysctl{forwarding6, "1"},
		sysctl{"ipv6/conf/" + bridge + "/forwarding", "1"}, // of a bridge that was made since, see toCome6
		linkLocalSpeaker{bridge},                           // while it forwards: the kernel else joins the routers' anycast group for it twice, and leaves it once
		sysctl{"ipv6/conf/" + bridge + "/proxy_ndp", "1"},
		sysctl{"ipv6/conf/all/proxy_ndp", "1"}, // of what is asked of a MAC alone: to forward or to answer, ip6_forward looks at this one
		sysctl{"ipv6/neigh/" + bridge + "/proxy_delay", "0"},
	}
}

// change returns the value to write and the one that is there; same means that
// nothing need be written.
func (s sysctl) change() (write, old string, same bool, err error) {
	old, err = readSysctl(s.path)
	if err != nil {
		return "", "", false, err
	}
	if s.value != loose {
		return s.value, old, s.value == old, nil
	}
	all, err := readSysctl(path.Join(path.Dir(path.Dir(s.path)), "all/rp_filter"))
	if err != nil {
		return "", "", false, err
	}
	return "2", old, max(all, old) != "1", nil
}

func (s sysctl) ensure(*kernel) error {
	write, _, same, err := s.change()
	if err != nil || same {
		return err
	}
	if s.path == forwarding6 {
		return forward6()
	}
	return writeSysctl(s.path, write)
}

// remove does nothing: what was before is in the notebook, see restore.
func (s sysctl) remove(*kernel) error { return nil }

func readSysctl(name string) (string, error) {
	b, err := os.ReadFile(path.Join("/proc/sys/net", name))
	if err != nil {
		return "", fmt.Errorf("read sysctl net/%s: %w", name, bare(err))
	}
	return strings.TrimSpace(string(b)), nil
}

func writeSysctl(name, value string) error {
	if err := os.WriteFile(path.Join("/proc/sys/net", name), []byte(value), 0); err != nil {
		return fmt.Errorf("write sysctl net/%s: %w", name, bare(err))
	}
	return nil
}

// forwarding4 is what forwards IPv4 by all devices, and by those to come, when it is written.
const forwarding4 = "ipv4/conf/all/forwarding"

// given is the value that a sysctl has by us.
func given(name string) string {
	switch path.Base(name) {
	case "rp_filter", "accept_ra":
		return "2"
	case "proxy_delay", "disable_ipv6":
		return "0"
	}
	return "1"
}

// byHost ends what is remembered of forwarding IPv4 by a device, where the host as a whole forwarded.
const byHost = "/host"

// noted is what is remembered of a sysctl that was so.
func noted(name, was string) string {
	if all, err := readSysctl(forwarding4); isForwarding4(name) && err == nil && all == "1" {
		return was + byHost
	}
	return was
}

func isForwarding4(name string) bool {
	return strings.HasPrefix(name, "ipv4/") && path.Base(name) == "forwarding"
}

// restore puts a remembered value back, unless somebody has set another meanwhile, or has made a host forward IPv4
// by all its devices that did not before. A device that has gone took its with it.
func restore(name, remembered string) error {
	now, err := readSysctl(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && now != given(name) {
		return nil
	}
	value, host := strings.CutSuffix(remembered, byHost)
	if isForwarding4(name) && !host && noted(name, "") == byHost {
		return nil
	}
	if err := writeSysctl(name, value); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func bare(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
