package agent

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"godwit/migration"
	"godwit/transfer/pages"
)

// offering is what a host has for a guest that is to come.
type offering struct {
	host    string
	version string // of QEMU
	accel   string // kvm or tcg
	flags   string // of the processor; see cpuFlags
	free    int64  // bytes of memory; below 0: unknown
	owed    int64  // bytes of it that guests on their way here will fill
	huge    int64  // bytes of free pages of the size that the guest's memory is on, where that is a huge one
	reserve int64  // bytes of it that must stay free
	mtu     int    // of guests, bytes
}

// mostMemory bounds what a guest is believed to have, bytes.
const mostMemory = 1 << 46

// lacks says what the offered guest needs and this host has not.
func (o offering) lacks(offer Offer) error {
	facts := offer.Facts
	if err := o.lacksMemory(offer); err != nil {
		return err
	}
	if older(o.version, facts.Version) {
		return refuses(o.host, offer, migration.CodeHypervisor, "its QEMU %s is older than the source's %s; upgrade it", o.version, facts.Version)
	}
	if facts.Accel == "kvm" && o.accel != "kvm" {
		return refuses(o.host, offer, migration.CodeHypervisor, "the guest runs under KVM and this host has none; choose another host")
	}
	if offer.MTU != 0 && offer.MTU != o.mtu {
		return refuses(o.host, offer, migration.CodeAddress, "its guests' MTU is %d bytes and the source's %d (network.mtu): full packets of open connections would not pass; give both the same", o.mtu, offer.MTU)
	}
	return o.lacksFlags(offer)
}

func (o offering) lacksMemory(offer Offer) error {
	memory := offer.Facts.Memory
	if memory < 0 || memory > mostMemory {
		return refuses(o.host, offer, migration.CodeUsage, "it is said to have %d bytes of memory", memory)
	}
	if need := memory + o.reserve; o.free >= 0 && o.free < need+o.owed && o.huge < memory {
		return refuses(o.host, offer, migration.CodeCapacity, "it has %d MiB of memory free, %d MiB are needed%s (%d MiB stay in reserve); free some or choose another host",
			o.free>>20, need>>20, beside(o.owed), o.reserve>>20)
	}
	return nil
}

// refuses is the answer of a host that does not take a guest.
func refuses(host string, offer Offer, code migration.Code, format string, args ...any) error {
	return &migration.Problem{Code: code, Text: fmt.Sprintf("host %s refuses guest %s: ", host, offer.Plan.Guest) + fmt.Sprintf(format, args...)}
}

// older compares QEMU versions by their first two numbers.
func older(a, b string) bool {
	parse := func(s string) (int, int) {
		parts := strings.SplitN(s, ".", 3)
		x, _ := strconv.Atoi(parts[0])
		y := 0
		if len(parts) > 1 {
			y, _ = strconv.Atoi(parts[1])
		}
		return x, y
	}
	a1, a2 := parse(a)
	b1, b2 := parse(b)
	return a1 < b1 || a1 == b1 && a2 < b2
}

// lacksRoomToSend says why a source has not the memory in which our own data path keeps what it knows of each page; "" if it has.
// Without it the kernel would end some process for the migration, maybe the guest's QEMU.
func lacksRoomToSend(memory, free int64) string {
	need := neededToSend(memory)
	if free >= need {
		return ""
	}
	return fmt.Sprintf("this host has %d MiB of memory free, and %d MiB are needed here to send the guest's %d MiB; free some, or use --mode precopy --transfer qemu-multifd",
		free>>20, need>>20, memory>>20)
}

// neededToSend is how much memory a source takes for what it knows of each page of a guest's, bytes.
func neededToSend(memory int64) int64 {
	return int64(pages.Need(uint64(max(memory, 0)) / pages.Size)) //nolint:gosec // some fiftieth of it
}

// availableMemory is MemAvailable of proc_meminfo(5), bytes.
func availableMemory() (int64, error) {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	for _, line := range strings.Split(string(data), "\n") {
		if rest, ok := strings.CutPrefix(line, "MemAvailable:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("read /proc/meminfo: no MemAvailable")
}

// freeHugePages is how much memory is set apart in huge pages of that size and not used or promised, bytes
// (Linux, Documentation/admin-guide/mm/hugetlbpage.rst). MemAvailable has none of it.
func freeHugePages(size int64) int64 {
	count := func(what string) int64 {
		data, err := os.ReadFile(fmt.Sprintf("/sys/kernel/mm/hugepages/hugepages-%dkB/%s_hugepages", size>>10, what))
		if err != nil {
			return 0 // the kernel has none of that size
		}
		n, _ := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
		return n
	}
	return max(count("free")-count("resv"), 0) * size
}

// sameRoot refuses a guest of an image whose root is another one here, or missing.
func (a *Agent) sameRoot(offer Offer) error {
	if offer.Root == "" {
		return nil
	}
	here, err := a.config.RootMark(offer.Description)
	switch image := offer.Description.Image; {
	case err != nil:
		return refuses(a.config.Host, offer, migration.CodeCapacity, "%v", err)
	case here == "":
		return refuses(a.config.Host, offer, migration.CodeCapacity, "it has no image %s; name it in its agent's configuration", image)
	case here != offer.Root:
		return refuses(a.config.Host, offer, migration.CodeCapacity, "its root of image %s is not the source's; copy that file here", image)
	}
	return nil
}
