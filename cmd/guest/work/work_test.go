package work

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"godwit/lab/image/workload"
)

func TestAreasAreFilledRewrittenAndChecked(t *testing.T) {
	disk := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(disk, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	set := &Set{DiskPath: disk}
	lines := []string{"dirty size=1MiB hot=25% rate=2MiB/s", "dirty size=64KiB data=text", "dirty size=64KiB rate=100KiB/s data=touch", "disk rate=400KiB/s area=512KiB", "http"}
	begun := time.Now() // before the first write is due: what a busy machine owes is made up for
	for range 2 {       // the second time nothing new begins
		if err := set.Start(t.Context(), lines); err != nil {
			t.Fatal(err)
		}
	}
	first := set.Verify()
	if first.Areas != 4 || first.Pages != 256+16+16+128 || first.Corrupt != 0 {
		t.Fatalf("after filling: %+v", first)
	}
	time.Sleep(500 * time.Millisecond)
	second := set.Verify()
	for until := begun.Add(10 * time.Second); second.Writes-first.Writes < 30 && time.Now().Before(until); second = set.Verify() {
		time.Sleep(10 * time.Millisecond)
	}
	took := time.Since(begun)
	if second.Corrupt != 0 || len(second.Errors) != 0 {
		t.Errorf("while rewriting: %+v", second)
	}
	if wrote := set.Wrote(); wrote < second.Writes {
		t.Errorf("%d pages written, without a check %d", second.Writes, wrote)
	}
	want := (512 + 25 + 100) * took.Seconds() // a busy machine writes less
	if wrote := second.Writes - first.Writes; wrote < 30 || float64(wrote) > 1.45*want {
		t.Errorf("%d pages rewritten in %v, want about %.0f", wrote, took, want)
	}
	set.areas[0].mu.Lock()
	defer set.areas[0].mu.Unlock()
	for number, version := range set.areas[0].versions {
		if number >= 64 && version != 1 {
			t.Fatalf("page %d was rewritten outside of the hot quarter", number)
		}
	}
}

// TestEqualLines: two equal lines are two workloads, also when they are given again.
func TestEqualLines(t *testing.T) {
	var begun int
	set := &Set{Spin: func() *exec.Cmd { return nil }, Begin: func(*exec.Cmd) error { begun++; return nil }}
	for i, lines := range [][]string{{"cpu", "cpu"}, {"cpu", "cpu"}, {"cpu", "cpu", "cpu"}} {
		if err := set.Start(t.Context(), lines); err != nil {
			t.Fatal(err)
		}
		if want := []int{2, 2, 3}[i]; begun != want {
			t.Errorf("%v: %d run, want %d", lines, begun, want)
		}
	}
}

// TestPartsOfADisk: workloads of one disk leave each other's pages alone.
func TestPartsOfADisk(t *testing.T) {
	disk := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(disk, make([]byte, 64<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	set := &Set{DiskPath: disk}
	if err := set.Start(t.Context(), []string{"disk write=32KiB", "disk rate=400KiB/s area=16KiB", "disk write=16KiB"}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	if v := set.Verify(); v.Areas != 3 || v.Pages != 16 || v.Corrupt != 0 {
		t.Errorf("%+v", v)
	}
	if err := set.Start(t.Context(), []string{"disk write=4KiB"}); err == nil || !strings.Contains(err.Error(), "too small for 4096 after 65536") {
		t.Errorf("a disk that is full: %v", err)
	}
}

func TestCorruptionIsSeen(t *testing.T) {
	set := &Set{}
	if err := set.Start(t.Context(), []string{"dirty size=64KiB"}); err != nil {
		t.Fatal(err)
	}
	area := set.areas[0].store.(memory)
	area[5*workload.PageSize+2000] ^= 1 // a broken page
	copy(area.page(7), area.page(6))    // a page in another's place
	old := append([]byte(nil), area.page(9)...)
	set.areas[0].write(9)
	copy(area.page(9), old) // an update that was lost
	v := set.Verify()
	if v.Corrupt != 3 || v.First != "area 1 page 5 version 1" {
		t.Errorf("got %+v, want 3 corrupt pages, page 5 first", v)
	}
}

func TestWrongWorkIsRefused(t *testing.T) {
	set := &Set{DiskPath: "/nonexistent/vda"}
	for line, want := range map[string]string{
		"disk write=1MiB": "no disk",
		"dirt":            "allowed",
	} {
		if err := set.Start(t.Context(), []string{line}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Start(%q) = %v, want an error with %q", line, err, want)
		}
	}
}

// TestSetupIsWaitedFor: it has ended when Start returns, and its failure is Start's.
func TestSetupIsWaitedFor(t *testing.T) {
	made := filepath.Join(t.TempDir(), "made")
	var s Set
	if err := s.Start(t.Context(), []string{"setup sleep 0.1; touch " + made}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(made); err != nil {
		t.Errorf("the setup had not ended: %v", err)
	}
	err := s.Start(t.Context(), []string{"setup echo one; echo the disk is full >&2; exit 3"})
	if err == nil || !strings.Contains(err.Error(), "exit status 3: the disk is full") {
		t.Errorf("a setup that fails: %v", err)
	}
}
