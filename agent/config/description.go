package config

import (
	"cmp"
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"godwit/migration"
	"godwit/vm"
)

// Description is a guest as its owner describes it: what it is, and how it is
// started here and elsewhere. It travels with the guest.
type Description struct {
	Name   string    `json:"name" yaml:"name"`
	Memory int64     `json:"memory" yaml:"memory"` // bytes
	VCPUs  int       `json:"vcpus" yaml:"vcpus"`   // 0: one, or what an adopted guest has
	NICs   []NIC     `json:"nics" yaml:"nics"`
	Disks  []vm.Disk `json:"disks,omitempty" yaml:"disks,omitempty"`
	Image  string    `json:"image,omitempty" yaml:"image,omitempty"` // "tiny" or "", or one of the agent's images; if Start is empty
	Run    []string  `json:"run,omitempty" yaml:"run,omitempty"`     // workloads of the image tiny
	// For a guest that something else started (godwit guest adopt):
	QMP       string              `json:"qmp,omitempty" yaml:"qmp,omitempty"`             // its QMP socket on the host where it is adopted; empty elsewhere
	Channel   string              `json:"channel,omitempty" yaml:"channel,omitempty"`     // its guest channel's socket there
	Agent     string              `json:"agent,omitempty" yaml:"agent,omitempty"`         // who answers on it: "godwit" or "", "qga", or "dhcp": nobody (docs/guest.md)
	Start     []string            `json:"start,omitempty" yaml:"start,omitempty"`         // command that starts it waiting, elsewhere; see docs/agent.md
	Addresses []migration.Address `json:"addresses,omitempty" yaml:"addresses,omitempty"` // where the guest cannot be asked
	Network   string              `json:"network,omitempty" yaml:"network,omitempty"`     // of its migrations that name none
}

// NIC is one of a guest's network interfaces.
type NIC struct {
	MAC string `json:"mac" yaml:"mac"`
	Tap string `json:"tap,omitempty" yaml:"tap,omitempty"` // here
}

// Hardware is the MAC in binary; nil: it is not one, and Check refuses it.
func (n NIC) Hardware() net.HardwareAddr {
	mac, err := net.ParseMAC(n.MAC)
	if err != nil || len(mac) != 6 {
		return nil
	}
	return mac
}

// LoadDescription reads a YAML file. Its errors are one line, of what the file says
// wrongly with line and column. Whether it can be meant is the agent's to say.
func LoadDescription(path string) (Description, error) {
	var d Description
	_, err := readYAML(path, &d, map[string]quantity{"memory": aSize, "size": aSize})
	if err != nil {
		return d, fmt.Errorf("read description: %w", err)
	}
	return d, nil
}

// lowest and highest of what a description may say.
const (
	leastMemory = 16 << 20
	mostVCPUs   = 255
	longestPath = 107 // sun_path but for its end, unix(7)
	longestName = 15  // IFNAMSIZ but for its end
)

var guestName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// IsGuestName says whether a guest may be called that: names become parts of paths and of others' lines.
func IsGuestName(name string) bool {
	return guestName.MatchString(name) && !strings.Contains(name, "..")
}

// Check says what is wrong with a description, in one line: a *migration.Problem of code usage, as
// all errors about a description are.
func (d Description) Check() error {
	wrong := d.Wrong
	switch {
	case !IsGuestName(d.Name):
		return wrong("its name must be one word of letters, digits, '.', '_' and '-', up to 64, from a letter or digit on, without '..'")
	case d.Memory < leastMemory:
		return wrong("memory of %d bytes; at least 16 MiB", d.Memory)
	case d.VCPUs < 0 || d.VCPUs > mostVCPUs:
		return wrong("vcpus %d; 1 to %d", d.VCPUs, mostVCPUs)
	case len(d.NICs) == 0 || len(d.NICs) > 2:
		return wrong("%d NICs; one that is active and one that is spare are needed", len(d.NICs))
	case d.Network != "" && !slices.Contains(migration.Networks, d.Network):
		return wrong("network %q is unknown; allowed: %s", d.Network, strings.Join(migration.Networks, ", "))
	}
	if known := []string{AgentHelper, AgentQGA, AgentDHCP}; d.Agent != "" && !slices.Contains(known, d.Agent) {
		return wrong("agent %q is unknown; allowed: %s", d.Agent, strings.Join(known, ", "))
	}
	if d.Silent() && d.Channel != "" {
		return wrong("agent %s is for a guest that has no channel; drop channel, or name who answers on it", AgentDHCP)
	}
	for i, n := range d.NICs {
		if n.Hardware() == nil {
			return wrong("MAC %q is not one; such as 52:54:00:00:00:0a", n.MAC)
		}
		if n.Hardware()[0]&1 != 0 {
			return wrong("MAC %s is a group's, such as of a broadcast; a NIC's is such as 52:54:00:00:00:0a", n.MAC)
		}
		if i > 0 && slices.Equal(n.Hardware(), d.NICs[0].Hardware()) {
			return wrong("both NICs have the MAC %s", n.MAC)
		}
	}
	for _, s := range []struct{ what, path string }{{"qmp", d.QMP}, {"channel", d.Channel}} {
		if s.path != "" && (!filepath.IsAbs(s.path) || len(s.path) > longestPath) {
			return wrong("%s %q: not the absolute path of a socket, of at most %d bytes", s.what, s.path, longestPath)
		}
	}
	if text := checkDisks(d.Disks); text != "" {
		return wrong("%s", text)
	}
	for _, addr := range d.Addresses {
		if !addr.Prefix.IsValid() {
			return wrong("an address lacks its prefix; such as 10.1.1.20/24")
		}
	}
	return nil
}

// CheckAdopted says what a description lacks for a guest that runs already.
func (d Description) CheckAdopted() error {
	if d.Image != "" || len(d.Run) > 0 {
		return d.Wrong("image and run are of guests that the agent starts; drop them, or qmp")
	}
	for i, n := range d.NICs {
		if !IsDevice(n.Tap) {
			return d.Wrong("nics[%d]: tap %q is not the name of a device; name the tap that QEMU has for %s", i, n.Tap, n.MAC)
		}
		if i > 0 && n.Tap == d.NICs[0].Tap {
			return d.Wrong("both NICs have the tap %s", n.Tap)
		}
	}
	return nil
}

// CheckStarted says what a description wrongly says of a guest that the agent is to
// start itself, of one of its images.
func (d Description) CheckStarted(images []string) error {
	switch {
	case d.Image != "" && d.Image != TinyImage && !slices.Contains(images, d.Image):
		return d.Wrong("image %q is unknown; allowed: %s, or name the QMP socket of a guest that runs already (qmp)", d.Image, cmp.Or(strings.Join(images, ", "), "none"))
	case d.Silent() && (d.Image == "" || d.Image == TinyImage):
		return d.Wrong("the image %s has no client of DHCP; drop agent: %s", TinyImage, AgentDHCP)
	case d.Silent() && len(d.Run) > 0:
		return d.Wrong("run needs a program in the guest that can be asked; drop it, or agent: %s", AgentDHCP)
	case d.Image == "" && (d.Channel != "" || len(d.Start) > 0 || len(d.Addresses) > 0):
		return d.Wrong("qmp is missing; name the QMP socket of its QEMU")
	}
	return nil
}

// TinyImage is the lab's own image.
const TinyImage = "tiny"

// Wrong is the error that says what is wrong with d, such as what an image or a disk of it lacks.
func (d Description) Wrong(format string, a ...any) error {
	return &migration.Problem{Code: migration.CodeUsage, Text: "guest " + d.shown() + ": " + fmt.Sprintf(format, a...)}
}

// shown is the name for a message of one line, whatever it is.
func (d Description) shown() string {
	if guestName.MatchString(d.Name) || d.Name == "" {
		return d.Name
	}
	return strconv.Quote(d.Name)
}

// Who answers on a guest's channel (Description.Agent).
const (
	AgentHelper = "godwit" // our helper: the first process of tiny, or godwit-guest
	AgentQGA    = "qga"    // the QEMU guest agent
	AgentDHCP   = "dhcp"   // nobody: its address is given to a DHCP client; see package outside
)

// Silent says that nobody in the guest can be asked.
func (d Description) Silent() bool { return d.Agent == AgentDHCP }

// Elsewhere is the description for another host, where the guest's sockets and taps
// are the agent's to name.
func (d Description) Elsewhere() Description {
	d.QMP, d.Channel = "", ""
	d.NICs = slices.Clone(d.NICs)
	for i := range d.NICs {
		d.NICs[i].Tap = ""
	}
	return d
}

// checkDisks says what is wrong with a description's disks, "" if nothing.
func checkDisks(disks []vm.Disk) string {
	seen := map[string]bool{}
	for _, d := range disks {
		switch {
		case !guestName.MatchString(d.ID) || len(d.ID) > longestDiskID || strings.Contains(d.ID, ".") || d.ID[0] >= '0' && d.ID[0] <= '9':
			return fmt.Sprintf("disk id %q: a letter, then letters, digits, '_' and '-', up to %d, are allowed", d.ID, longestDiskID)
		case seen[d.ID]:
			return fmt.Sprintf("two disks have the id %s", d.ID)
		}
		seen[d.ID] = true
	}
	if len(disks) > mostDisks {
		return fmt.Sprintf("%d disks; at most %d", len(disks), mostDisks)
	}
	return ""
}

// mostDisks is how many a guest may have.
const mostDisks = 8

// longestDiskID leaves room for the names that QEMU's nodes get by it (31 bytes).
const longestDiskID = 23
