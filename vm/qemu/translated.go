package qemu

import (
	"bufio"
	"fmt"
	"os"
	"strings"
)

// QEMU without KVM translates what a guest runs into memory that it has never touched, and the kernel clears that when
// it is touched first: two MiB at once, for each of which a guest that has just arrived was seen to stand still for 5
// to 7 ms (docs/experiments.md, "The same half second").
const (
	// translatedFirst is what is translated in about the first second.
	translatedFirst = 24 << 20
	// translatedLeast tells that memory from what else a QEMU may write to and run. Ours has 128 MiB of it (accelOption),
	// others have more.
	translatedLeast = 32 << 20
)

// fetchTranslated has the kernel clear that memory now, in a QEMU whose guest has not run yet. What was touched stays as it
// is. A QEMU with KVM has none. What cannot be had now comes later, by itself.
func (p *Process) fetchTranslated() error {
	at, size, err := translated(fmt.Sprintf("/proc/%d/maps", p.pid))
	if err != nil || size == 0 {
		return err
	}
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", p.pid), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer memory.Close()
	pagemap, err := os.Open(fmt.Sprintf("/proc/%d/pagemap", p.pid))
	if err != nil {
		return err
	}
	defer pagemap.Close()
	for page := at; page < at+min(size, translatedFirst); page += PageSize {
		there, err := touched(pagemap, page)
		if err == nil && !there {
			_, err = memory.WriteAt([]byte{0}, page) // which it has already
		}
		if err != nil {
			return fmt.Errorf("fetch memory of QEMU %d: %w", p.pid, err)
		}
	}
	return nil
}

// translated finds that memory in a process's maps; size is 0 where there is none.
func translated(maps string) (at, size int64, err error) {
	file, err := os.Open(maps)
	if err != nil {
		return 0, 0, err
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var begin, end, offset, inode int64
		var rights, device string
		if n, _ := fmt.Sscanf(lines.Text(), "%x-%x %s %x %s %d", &begin, &end, &rights, &offset, &device, &inode); n < 6 {
			continue // [vsyscall], beyond what is signed
		}
		if strings.HasPrefix(rights, "rwx") && inode == 0 && end-begin >= translatedLeast {
			return begin, end - begin, nil
		}
	}
	return 0, 0, nil
}
