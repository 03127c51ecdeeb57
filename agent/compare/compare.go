// Package compare holds a guest's memory, as it is where the guest arrives, against what it was where it left: each
// page, read past QEMU. It is for tests: a lab asks its agents for it by an environment variable, and reads what they
// found. What it takes is downtime, 0.2 s to 1 s.
//
// What is compared is every page of every block that both QEMUs have, those of ROMs and
// ACPI tables included: loading the devices' state writes nothing into memory (seen with
// QEMU 10.0 and our devices, by every transfer). Under KVM it writes into one page: QEMU sets the register
// by which the guest asked for the time (MSR_KVM_WALL_CLOCK), and the kernel answers at once, in the guest's memory. One
// page differs by that, in nothing else than that answer (clock.go). In post-copy it is well defined for two
// kinds of pages only: those that are there before the first instruction, in QEMU's memory,
// and those that follow, as they are handed to QEMU. What QEMU makes of the second kind only
// the guest can tell.
package compare

import (
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"godwit/migration"
	"godwit/vm"
	"godwit/vm/qemu"
)

// Variable is the environment variable by which a lab has the agents of its hosts
// compare each guest's memory. It names a directory that all of them see: the source puts
// the sums of the stopped guest's pages there (ID.pages), and the destination, before the
// guest's first instruction, what came of comparing its own (ID.json; ID-late.json of pages that
// followed). Where it is not set, nothing is read.
const Variable = "GODWIT_LAB_MEMORY"

func dir() string { return os.Getenv(Variable) }

// Found is what a destination found, as JSON.
type Found struct {
	Migration string   `json:"migration"`
	Guest     string   `json:"guest"`
	Pages     int      `json:"pages"`            // that were compared
	Count     int      `json:"count"`            // that differ
	Differ    []string `json:"differ,omitempty"` // the first of them, BLOCK+OFFSET
	Late      bool     `json:"late,omitempty"`   // pages that followed the guest
	Time      string   `json:"time,omitempty"`   // the page into which KVM has written the time, and nothing else
}

// Problem says what is wrong; "" if nothing is.
func (f Found) Problem() string {
	switch {
	case f.Count > 0:
		return fmt.Sprintf("memory of guest %s is not what it was: %d of %d pages differ, the first at %s",
			f.Guest, f.Count, f.Pages, strings.Join(f.Differ, ", "))
	case f.Pages == 0 && !f.Late:
		return "memory of guest " + f.Guest + " could not be compared: no page is known on both hosts"
	}
	return ""
}

// MemoryOf asks a guest's QEMU where its memory is; nil where nothing is compared. While
// the stopped guest's QEMU sends the last of it, it may not answer.
func MemoryOf(ctx context.Context, machine vm.Machine) (*qemu.Memory, error) {
	process, ok := machine.(*qemu.Process)
	if dir() == "" || !ok {
		return nil, nil //nolint:nilnil // nothing to compare
	}
	return process.Memory(ctx)
}

// Left puts the sums of a guest that is stopped at its source where the destination finds them.
func Left(ctx context.Context, id string, memory *qemu.Memory) error {
	sums, err := memory.Sums(ctx, false)
	if err != nil {
		return err
	}
	path := sumsFile(id)
	file, err := os.Create(path + ".new")
	if err != nil {
		return err
	}
	to := gob.NewEncoder(file)
	if err := errors.Join(to.Encode(sums), to.Encode(memory), file.Close()); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func sumsFile(id string) string { return filepath.Join(dir(), id+".pages") }

// Arrived holds memory of a guest that does not run yet against what Left put down, and writes down what came of it. Where
// present is set pages are missing still, and only those that are there are read. kvm says that KVM runs the guest. A
// migration.Problem names pages that differ.
func Arrived(ctx context.Context, p migration.Plan, memory *qemu.Memory, present, kvm bool) error {
	sums, err := memory.Sums(ctx, present)
	if err != nil {
		return err
	}
	if !kvm {
		memory = nil
	}
	return compare(p, sums, memory, Found{})
}

// compare adds to found what came of it, and writes it down. memory is that of a guest that KVM runs, or nil.
func compare(p migration.Plan, sums qemu.Sums, memory *qemu.Memory, found Found) error {
	file, err := os.Open(sumsFile(p.ID))
	if err != nil {
		return fmt.Errorf("compare memory: %w", err)
	}
	defer file.Close()
	var was qemu.Sums
	var there qemu.Memory
	from := gob.NewDecoder(file)
	if err := errors.Join(from.Decode(&was), from.Decode(&there)); err != nil {
		return fmt.Errorf("compare memory: %w", err)
	}
	d := sums.Compare(was)
	if memory != nil && d.Count == 1 && onlyTime(&there, memory, d.Block, d.Page) {
		found.Time, d.Count, d.Differ = d.Differ[0], 0, nil
	}
	found.Migration, found.Guest, found.Pages, found.Count, found.Differ = p.ID, p.Guest, d.Pages, d.Count, d.Differ
	data, err := json.Marshal(found)
	if err != nil {
		return err
	}
	path := filepath.Join(dir(), p.ID+".json")
	if found.Late {
		path = filepath.Join(dir(), p.ID+"-late.json")
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return err
	}
	if problem := found.Problem(); problem != "" {
		return &migration.Problem{Code: migration.CodeHypervisor, Text: fmt.Sprintf("host %s refuses guest %s: %s", p.To, p.Guest, problem)}
	}
	return nil
}

// Late is the sums of pages that follow a guest (post-copy), as they are handed to
// its QEMU. Those of an agent that was killed are forgotten. The zero value has none.
type Late struct {
	mu   sync.Mutex
	sums qemu.Sums
}

// Hears is what a proxy tells each of those pages; nil where nothing is compared.
func (l *Late) Hears() func(block string, offset, length int64, page []byte) {
	if dir() == "" {
		return nil
	}
	zeros := make([]byte, qemu.PageSize)
	return func(block string, offset, length int64, page []byte) {
		if page == nil {
			page = zeros
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.sums == nil {
			l.sums = qemu.Sums{}
		}
		if l.sums[block] == nil {
			l.sums[block] = make([]uint64, length/qemu.PageSize)
		}
		l.sums[block][offset/qemu.PageSize] = qemu.Sum(page)
	}
}

// Compare is Arrived of those, once the last has come; nil where none did.
func (l *Late) Compare(p migration.Plan) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sums == nil {
		return nil
	}
	return compare(p, l.sums, nil, Found{Late: true})
}
