package capable

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"godwit/migration"
	"godwit/vm"
)

// Flags are what this host's processor can do, as far as it matters for the guest.
func Flags(f vm.Facts) string {
	if !ownProcessor(f) {
		return ""
	}
	data, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for _, line := range strings.Split(string(data), "\n") {
		if name, flags, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "flags" {
			return strings.TrimSpace(flags)
		}
	}
	return ""
}

// AvailableMemory is MemAvailable of proc_meminfo(5), bytes.
func AvailableMemory() (int64, error) {
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

// FreeHugePages is how much memory is set apart in huge pages of that size and not used or promised, bytes
// (Linux, Documentation/admin-guide/mm/hugetlbpage.rst). MemAvailable has none of it.
func FreeHugePages(size int64) int64 {
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

// ResidentBytes is what a process has in memory.
func ResidentBytes(pid int) int64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(data))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

// OtherDisks says that a QEMU, by its guest's start command, has not the files that were made for the disks, or has
// them otherwise than the guest does. It would write what comes over what lies in those that it has.
func OtherDisks(host string, guest Guest, made, has []vm.Disk) error {
	for n, disk := range made {
		i := slices.IndexFunc(has, func(d vm.Disk) bool { return d.ID == disk.ID })
		if i < 0 {
			return Refuses(host, guest.Name, migration.CodeHypervisor, "its start command makes no disk %s; give a drive or block node of that name the file {disk%d}", disk.ID, n)
		}
		a, err := os.Stat(has[i].Path)
		b, err2 := os.Stat(disk.Path)
		if same := err == nil && err2 == nil && os.SameFile(a, b); !same && !strings.Contains(has[i].Path, disk.Path) { // QEMU may tell it among options
			return Refuses(host, guest.Name, migration.CodeHypervisor, "its start command has its disk %s in %s; write {disk%d} there, which is the file that was made for it", disk.ID, has[i].Path, n)
		}
		if has[i].ReadOnly != disk.ReadOnly { // the guest would find another device
			return Refuses(host, guest.Name, migration.CodeHypervisor, "its start command has its disk %s with read-only=%s, the guest with read-only=%s; write that", disk.ID, onOff(has[i].ReadOnly), onOff(disk.ReadOnly))
		}
	}
	return nil
}

// onOff is how QEMU's options say it.
func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}
