package agent

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

// MemoryVariable is the environment variable by which a lab has the agents of its hosts
// compare each guest's memory. It names a directory that all of them see: the source puts
// the sums of the stopped guest's pages there (ID.pages), and the destination, before the
// guest's first instruction, what came of comparing its own (ID.json). Where it is not set,
// nothing is read.
//
// What is compared is every page of every block that both QEMUs have, those of ROMs and
// ACPI tables included: loading the devices' state writes nothing into memory (seen with
// QEMU 10.0 and our devices, by every transfer). In post-copy it is well defined for two
// kinds of pages only: those that are there before the first instruction, in QEMU's memory,
// and those that follow, as they are handed to QEMU. What QEMU makes of the second kind only
// the guest can tell.
const MemoryVariable = "GODWIT_LAB_MEMORY"

var memoryDir = os.Getenv(MemoryVariable)

// Compared is what a destination found.
type Compared struct {
	Migration string   `json:"migration"`
	Guest     string   `json:"guest"`
	Pages     int      `json:"pages"`            // that were compared
	Count     int      `json:"count"`            // that differ
	Differ    []string `json:"differ,omitempty"` // the first of them, BLOCK+OFFSET
	Late      bool     `json:"late,omitempty"`   // pages that followed the guest
}

// Problem says what is wrong; "" if nothing is.
func (c Compared) Problem() string {
	switch {
	case c.Count > 0:
		return fmt.Sprintf("memory of guest %s is not what it was: %d of %d pages differ, the first at %s",
			c.Guest, c.Count, c.Pages, strings.Join(c.Differ, ", "))
	case c.Pages == 0 && !c.Late:
		return "memory of guest " + c.Guest + " could not be compared: no page is known on both hosts"
	}
	return ""
}

// memoryOf asks a guest's QEMU where its memory is; nil where nothing is compared. While
// the stopped guest's QEMU sends the last of it, it may not answer.
func memoryOf(ctx context.Context, machine vm.Machine) (*qemu.Memory, error) {
	process, ok := machine.(*qemu.Process)
	if memoryDir == "" || !ok {
		return nil, nil //nolint:nilnil // nothing to compare
	}
	return process.Memory(ctx)
}

// noteMemory puts the stopped guest's sums where the destination finds them.
func (m *outgoing) noteMemory(ctx context.Context, memory *qemu.Memory) error {
	if memory == nil {
		return nil
	}
	return m.rec.Timed("compare memory: read it here", func() error {
		sums, err := memory.Sums(ctx, false)
		if err != nil {
			return err
		}
		path := sumsFile(m.plan.ID)
		file, err := os.Create(path + ".new")
		if err != nil {
			return err
		}
		if err := errors.Join(gob.NewEncoder(file).Encode(sums), file.Close()); err != nil {
			return err
		}
		return os.Rename(path+".new", path)
	})
}

func sumsFile(id string) string { return filepath.Join(memoryDir, id+".pages") }

// compareMemory holds the guest's memory, which does not run yet, against what it was at
// the source. The error names pages that differ.
func (m *incoming) compareMemory(ctx context.Context) error {
	machine := m.work.guest.Machine
	memory, err := memoryOf(ctx, machine)
	if err != nil || memory == nil {
		return err
	}
	if status, err := machine.Status(ctx); err != nil || status == vm.Running { // an earlier agent started it
		return err
	}
	return m.rec.Timed("compare memory", func() error {
		early := false
		select {
		case <-m.handedOver():
			early = mayHandEarly(m.plan)
		default:
		}
		sums, err := memory.Sums(ctx, early)
		if err != nil {
			return err
		}
		return m.compare(sums, false)
	})
}

// compare writes down what came of it.
func (m *incoming) compare(sums qemu.Sums, late bool) error {
	file, err := os.Open(sumsFile(m.plan.ID))
	if err != nil {
		return fmt.Errorf("compare memory: %w", err)
	}
	defer file.Close()
	var was qemu.Sums
	if err := gob.NewDecoder(file).Decode(&was); err != nil {
		return fmt.Errorf("compare memory: %w", err)
	}
	d := sums.Compare(was)
	found := Compared{Migration: m.plan.ID, Guest: m.plan.Guest, Pages: d.Pages, Count: d.Count, Differ: d.Differ, Late: late}
	data, err := json.Marshal(found)
	if err != nil {
		return err
	}
	path := filepath.Join(memoryDir, m.plan.ID+".json")
	if late {
		path = filepath.Join(memoryDir, m.plan.ID+"-late.json")
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return err
	}
	if problem := found.Problem(); problem != "" {
		return &migration.Problem{Code: migration.CodeHypervisor, Text: fmt.Sprintf("host %s refuses guest %s: %s", m.plan.To, m.plan.Guest, problem)}
	}
	return nil
}

// latePages are the sums of pages that follow a guest (post-copy), as they are handed to
// its QEMU. Those of an agent that was killed are forgotten.
type latePages struct {
	mu   sync.Mutex
	sums qemu.Sums
}

// hears is what a proxy tells each of those pages; nil where nothing is compared.
func (l *latePages) hears() func(block string, offset, length int64, page []byte) {
	if memoryDir == "" {
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

// compareLate is for those, once the last has come. The guest runs on, whatever it finds:
// the lab reads it.
func (m *incoming) compareLate() {
	m.late.mu.Lock()
	defer m.late.mu.Unlock()
	if m.late.sums == nil {
		return
	}
	if err := m.compare(m.late.sums, true); err != nil {
		m.rec.Note(err.Error())
	}
}
