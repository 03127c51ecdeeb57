package qemu

import "testing"

// TestDiskWrites: what a guest wrote is of its disks alone, whether QEMU names them by their device or their node.
func TestDiskWrites(t *testing.T) {
	f, p := newFake(t, "10.0.2")
	f.set(func() {
		f.first = func(command, _ string) (string, bool) {
			if command != "query-blockstats" {
				return "{}", true
			}
			return `[{"device": "", "node-name": "disk0", "stats": {"wr_operations": 3, "wr_bytes": 12288}}, ` +
				`{"device": "drive1", "node-name": "#block7", "stats": {"wr_operations": 4, "wr_bytes": 65536}}, ` +
				`{"device": "", "node-name": "root", "stats": {"wr_operations": 90, "wr_bytes": 900}}]`, true
		}
	})
	times, bytes, err := p.DiskWrites(t.Context(), []string{"disk0", "drive1"})
	if times != 7 || bytes != 77824 || err != nil {
		t.Errorf("%d times, %d bytes, %v; want 7, 77824", times, bytes, err)
	}
}
