package qemu

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// ramblocks is what QEMU 10.0 says, shortened.
const ramblocks = `              Block Name    PSize              Offset               Used              Total                HVA  RO
                  pc.ram    4 KiB  0x0000000000000000 0x0000000004000000 0x0000000004000000 0x00007f5b1fe00000  rw
                 pc.bios    4 KiB  0x0000000004000000 0x0000000000040000 0x0000000000040000 0x00007f5b2b800000  ro
    /rom@etc/acpi/tables    4 KiB  0x0000000004080000 0x0000000000020000 0x0000000000200000 0x00007f5b2b400000  rw
`

func TestParseBlocks(t *testing.T) {
	got, err := parseBlocks(ramblocks)
	if err != nil {
		t.Fatal(err)
	}
	want := []Block{
		{"pc.ram", 0x7f5b1fe00000, 64 << 20}, {"pc.bios", 0x7f5b2b800000, 256 << 10}, {"/rom@etc/acpi/tables", 0x7f5b2b400000, 128 << 10},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{"", "Block Name PSize Offset Used Total\n", "Block Name PSize Offset Used Total HVA RO\npc.ram 4 KiB 0x0 x 0x1 0x1 rw\n", "Block Name PSize HVA\n"} {
		if _, err := parseBlocks(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestLargestPage(t *testing.T) {
	huge := strings.Replace(ramblocks, "pc.ram    4 KiB", "pc.ram    2 MiB", 1)
	huge7 := "Block Name    PSize              Offset               Used              Total\n  pc.ram    1 GiB  0x0 0x4000000 0x4000000\n" // QEMU 7.2
	for text, want := range map[string]int64{ramblocks: 4 << 10, huge: 2 << 20, huge7: 1 << 30, "": 0, "none": 0} {
		if got := largestPage(text); got != want {
			t.Errorf("%d bytes, want %d, in\n%s", got, want, text)
		}
	}
}

func TestCompare(t *testing.T) {
	was := Sums{"pc.ram": {1, 2, 3, 4, 5, 6, 7, 8}, "gone": {1}, "bios": {9}}
	now := Sums{"pc.ram": {1, 2, 7, 0, 9, 9, 9, 9}, "new": {4}, "bios": {9}}
	want := Difference{Pages: 8, Count: 5, Differ: []string{"pc.ram+0x2000", "pc.ram+0x4000", "pc.ram+0x5000", "pc.ram+0x6000"}, Block: "pc.ram", Page: 2}
	if diff := cmp.Diff(want, now.Compare(was)); diff != "" {
		t.Error(diff)
	}
}
