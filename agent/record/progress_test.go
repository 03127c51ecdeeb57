package record

import "testing"

// TestProgressInWords: a line says what is known, and nothing of what is not.
func TestProgressInWords(t *testing.T) {
	now := int64(6_400_000) // as a limit lets it carry less than it can
	lanes := DataPath{
		Queue: 11_400_000, Waiting: 2000, InFlight: 560, HotPages: 570, Pages: map[string]int64{"raw": 400, "batch": 320, "zero": 170, "delta": 110},
		Paths: []PathRate{{Path: "public-public", Lanes: 1, Rate: 12_500_000, Carries: &now}, {Path: "private-private", Died: 1}, {Path: "not-yet"}},
	}
	opaque := DataPath{Opaque: `section "vfio"`, Pages: map[string]int64{"raw": 1}}
	for _, c := range []struct {
		name string
		p    CopyProgress
		want string
	}{
		{"nothing yet", CopyProgress{What: CopyOfDisk}, "disk: not yet"},
		{"a disk", CopyProgress{What: CopyOfDisk, Total: 1_000_000_000, Remaining: 600_000_000, Rate: 12_500_000, LeftS: 48}, "disk 40 % of 1000 MB, 100 Mbit/s, about 48.0 s left"},
		{"QEMU's transfer", CopyProgress{What: CopyOfMemory, Total: 200_000_000, Remaining: 50_000_000, Rate: 1_000_000, DirtyRate: new(int64(550_000)), Throttled: 40, Round: 2},
			"memory 75 % of 200 MB, round 2, 8.0 Mbit/s, the guest writes 4.4 Mbit/s, it stands still for 40 % of the time"},
		{"our own", CopyProgress{What: CopyOfMemory, Total: 201_326_592, Remaining: 90_177_536, Rate: 12_500_000, DirtyRate: new(int64(1_250_000)), Round: 3, LeftS: 4.23, DataPath: &lanes},
			"memory 50 % of 201 MB, round 3, 100 Mbit/s, the guest writes 10 Mbit/s, queue 11 MB, 570 hot pages, public-public 51 Mbit/s, private-private broken, 40 % raw, 32 % batch, 17 % zero, about 4.2 s left"},
		{"post-copy", CopyProgress{What: CopyOfRest, Total: 201_326_592, Remaining: 10_485_760, Round: 9, DataPath: &DataPath{Queue: 9_000_000, Waiting: 2560}},
			"memory that follows 95 % of 201 MB, round 9, queue 9.0 MB"},
		{"from an agent that tells what its paths can carry alone", CopyProgress{What: CopyOfMemory, Total: 100, Remaining: 100, DataPath: &DataPath{Paths: []PathRate{{Path: "a", Lanes: 1, Rate: 12_500_000}}}},
			"memory 0 % of 0.0 MB, queue 0.0 MB, a 100 Mbit/s"},
		{"post-copy, at its end", CopyProgress{What: CopyOfRest, Total: 201_326_592, DataPath: &DataPath{Paths: []PathRate{{Path: "public-public", Died: 1}}}},
			"memory that follows 100 % of 201 MB, queue 0.0 MB"},
		{"opaque", CopyProgress{What: CopyOfMemory, Total: 100, Remaining: 100, DataPath: &opaque}, "memory 0 % of 0.0 MB, queue 0.0 MB, QEMU's stream is passed on as it is"},
		{"more written than there is", CopyProgress{What: CopyOfMemory, Total: 8 << 20, Remaining: 8 << 20, DataPath: &lanes}, ""},
	} {
		if c.want == "" {
			if left := c.p.Left(); left != c.p.Total {
				t.Errorf("%s: %d are left of %d", c.name, left, c.p.Total)
			}
			continue
		}
		if got := c.p.Line(); got != c.want {
			t.Errorf("%s:\n%s, want\n%s", c.name, got, c.want)
		}
	}
}
