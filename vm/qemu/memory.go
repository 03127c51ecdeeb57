package qemu

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/zeebo/xxh3"

	"godwit/vm/qemu/qmp"
)

// PageSize is that of the pages that Sums are of, bytes.
const PageSize = 4096

// Memory is where a QEMU has its guest's memory in its own. Tests read it there, past QEMU,
// to know whether a guest arrived whole. It may be written down for another process of this machine.
type Memory struct {
	PID    int
	Blocks []Block
}

// Block is a block of guest memory as QEMU has it (softmmu/physmem.c, RAMBlock).
type Block struct {
	Name string
	At   int64 // address in QEMU's own memory
	Size int64 // bytes in use
}

// Sums are fast hashes of a guest's pages, in order, by the name of QEMU's block. A page
// whose sum is 0 was not looked at.
type Sums map[string][]uint64

// Memory asks QEMU where the guest's memory is (x-query-ramblock, which tells addresses
// since 8.2).
func (p *Process) Memory(ctx context.Context) (*Memory, error) { return memoryOf(ctx, p.qmp, p.pid) }

// Memory is where the guest's memory is.
func (l *Looker) Memory(ctx context.Context) (*Memory, error) { return memoryOf(ctx, l.qmp, l.PID) }

func memoryOf(ctx context.Context, client *qmp.Client, pid int) (*Memory, error) {
	text, err := ramTable(ctx, client)
	if err != nil {
		return nil, err
	}
	blocks, err := parseBlocks(text)
	if err != nil {
		return nil, fmt.Errorf("x-query-ramblock: %w", err)
	}
	return &Memory{PID: pid, Blocks: blocks}, nil
}

// ramTable is QEMU's table of its blocks of memory.
func ramTable(ctx context.Context, client *qmp.Client) (string, error) {
	var answer struct {
		Text string `json:"human-readable-text"`
	}
	err := client.Do(ctx, "x-query-ramblock", nil, &answer)
	return answer.Text, err
}

// largestPage is the largest page size in that table, bytes; 0 if it has none.
func largestPage(table string) (most int64) {
	for _, line := range strings.Split(table, "\n") {
		words := strings.Fields(line)
		if len(words) < 3 {
			continue
		}
		shift, known := map[string]int{"KiB": 10, "MiB": 20, "GiB": 30}[words[2]]
		n, err := strconv.ParseInt(words[1], 10, 16)
		if known && err == nil {
			most = max(most, n<<shift)
		}
	}
	return most
}

// parseBlocks reads QEMU's table: name, page size (two words), offset, used, total, address, ro or rw.
func parseBlocks(text string) ([]Block, error) {
	var out []Block
	for i, line := range strings.Split(strings.TrimSpace(text), "\n") {
		words := strings.Fields(line)
		if i == 0 {
			if !slices.Contains(words, "HVA") {
				return nil, errors.New("this QEMU does not say where memory is")
			}
			continue
		}
		if len(words) != 8 {
			return nil, fmt.Errorf("line %q", line)
		}
		used, err := strconv.ParseInt(words[4], 0, 64)
		at, err2 := strconv.ParseInt(words[6], 0, 64)
		if err := errors.Join(err, err2); err != nil {
			return nil, fmt.Errorf("line %q: %w", line, err)
		}
		if at == 0 || used < PageSize {
			continue
		}
		out = append(out, Block{words[0], at, used})
	}
	if len(out) == 0 {
		return nil, errors.New("no block of memory")
	}
	return out, nil
}

// Sums reads all of memory. The guest must not run. Where present is set, only pages are
// read that QEMU has in its memory now (pagemap; Linux, Documentation/admin-guide/mm/pagemap.rst):
// one that is missing still would be asked for by reading it.
func (m *Memory) Sums(ctx context.Context, present bool) (Sums, error) {
	memory, pagemap, err := m.open()
	if err != nil {
		return nil, err
	}
	defer memory.Close()
	defer pagemap.Close()
	out := Sums{}
	for _, b := range m.Blocks {
		sums := make([]uint64, b.Size/PageSize)
		for first := 0; first < len(sums); first += readPages {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			part := sums[first:min(first+readPages, len(sums))]
			if err := sum(memory, pagemap, b.At+int64(first)*PageSize, part, present); err != nil {
				return nil, fmt.Errorf("read memory of %s: %w", b.Name, err)
			}
		}
		out[b.Name] = sums
	}
	return out, nil
}

// open opens what QEMU's process has in memory, and what is said of its pages.
func (m *Memory) open() (memory, pagemap *os.File, err error) {
	if memory, err = os.Open(fmt.Sprintf("/proc/%d/mem", m.PID)); err != nil {
		return nil, nil, err
	}
	if pagemap, err = os.Open(fmt.Sprintf("/proc/%d/pagemap", m.PID)); err != nil {
		memory.Close()
		return nil, nil, err
	}
	return memory, pagemap, nil
}

// readPages are read at once.
const readPages = 256

// sum fills sums with those of the pages from at.
func sum(memory, pagemap io.ReaderAt, at int64, sums []uint64, present bool) error {
	data, entries := make([]byte, len(sums)*PageSize), make([]byte, len(sums)*8)
	if !present {
		if _, err := memory.ReadAt(data, at); err != nil {
			return err
		}
		for i := range sums {
			sums[i] = Sum(data[i*PageSize:][:PageSize])
		}
		return nil
	}
	if _, err := pagemap.ReadAt(entries, at/PageSize*8); err != nil {
		return err
	}
	for i := range sums {
		if binary.NativeEndian.Uint64(entries[i*8:])&(inMemory|swapped) == 0 {
			continue
		}
		page := data[:PageSize]
		if _, err := memory.ReadAt(page, at+int64(i)*PageSize); err != nil {
			return err
		}
		sums[i] = Sum(page)
	}
	return nil
}

// Page reads a page of a guest that does not run.
func (m *Memory) Page(block string, page int) ([]byte, error) {
	i := slices.IndexFunc(m.Blocks, func(b Block) bool { return b.Name == block })
	if i < 0 || page < 0 || int64(page) >= m.Blocks[i].Size/PageSize {
		return nil, fmt.Errorf("read page %d of %s: there is none", page, block)
	}
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", m.PID))
	if err != nil {
		return nil, err
	}
	defer memory.Close()
	data := make([]byte, PageSize)
	_, err = memory.ReadAt(data, m.Blocks[i].At+int64(page)*PageSize)
	return data, err
}

// Sum is the sum of a page; it is never 0.
func Sum(page []byte) uint64 { return max(xxh3.Hash(page), 1) }

// Difference is what Compare found.
type Difference struct {
	Pages  int      // that were compared
	Differ []string // the first of those that differ, as BLOCK+OFFSET
	Count  int      // all that differ
	Block  string   // of the first that differs
	Page   int      // likewise: its number in that block
}

// tellPages are named of those that differ.
const tellPages = 4

// Compare holds what a guest's memory is against what it was. Blocks that only one of the
// two has, and pages that were not looked at, count for nothing.
func (s Sums) Compare(was Sums) Difference {
	var d Difference
	for _, name := range sortedNames(s) {
		before := was[name]
		for i, sum := range s[name][:min(len(s[name]), len(before))] {
			if sum == 0 || before[i] == 0 {
				continue
			}
			if d.Pages++; sum == before[i] {
				continue
			}
			if d.Count++; d.Count == 1 {
				d.Block, d.Page = name, i
			}
			if d.Count <= tellPages {
				d.Differ = append(d.Differ, fmt.Sprintf("%s+%#x", name, i*PageSize))
			}
		}
	}
	return d
}

func sortedNames(s Sums) []string {
	var names []string
	for name := range s {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
