package vmtest

import (
	"fmt"
	"os"
	"slices"

	"godwit/vm/qemu"
)

// Damage changes one byte of a page in a QEMU's memory, for tests of who looks for that.
func Damage(m *qemu.Memory, block string, page int) error {
	i := slices.IndexFunc(m.Blocks, func(b qemu.Block) bool { return b.Name == block })
	if i < 0 || page < 0 || int64(page) >= m.Blocks[i].Size/qemu.PageSize {
		return fmt.Errorf("damage page %d of %s: there is none", page, block)
	}
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", m.PID), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer memory.Close()
	one, at := make([]byte, 1), m.Blocks[i].At+int64(page)*qemu.PageSize+qemu.PageSize/2
	if _, err := memory.ReadAt(one, at); err != nil {
		return err
	}
	one[0]++
	_, err = memory.WriteAt(one, at)
	return err
}
