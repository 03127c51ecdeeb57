package lab

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/lab/scenario"
	"godwit/migration"
	"godwit/vm/guest"
)

// seedBytes are of a read-only disk: data, then a hole as long.
const seedBytes = 16 << 20

// TestReadOnlyDiskMoves: a guest goes there and back with a disk that it writes to all the time and one that it may only
// read. It reads the same of that everywhere, can write to it nowhere, and each host has it as long as the guest is there.
func TestReadOnlyDiskMoves(t *testing.T) {
	p := newTrial(t, twoSites, func(string, *config.Config) {})
	g := scenario.Guest{Name: "web", Site: "montreal", Memory: 192 << 20, VCPUs: 1, Image: "tiny", Agent: "godwit", Network: "auto",
		Disks: []int64{64 << 20, 2 * seedBytes}, Run: []string{"disk rate=1MiB/s area=24MiB"}}
	p.w.scenario.Guests = append(p.w.scenario.Guests, g)
	d := p.w.describe(0, g)
	p.must(p.w.makeDisks(&d, g, "montreal"))
	seed := &d.Disks[1]
	seed.ReadOnly = true
	data := make([]byte, seedBytes)
	rand.Read(data) //nolint:errcheck // it does not fail
	f, err := os.OpenFile(seed.Path, os.O_WRONLY, 0)
	p.must(err)
	_, err = f.Write(data)
	p.must(err)
	p.must(f.Close())
	sum := fmt.Sprintf("%x", sha256.Sum256(append(data, make([]byte, seedBytes)...)))
	_, err = p.w.agents["montreal"].client.StartGuest(t.Context(), d)
	p.must(err)
	p.w.moved("web", "montreal")

	p.reads("montreal", sum)
	at := "montreal"
	for _, to := range []string{"sanjose", "montreal"} {
		rep := migrate(t, p.w.agents[at], to)
		if rep.Outcome != migration.Completed {
			t.Fatalf("%s → %s: %s, %v", at, to, rep.Outcome, rep.Problem)
		}
		t.Logf("%s → %s: %d bytes of disk on the wire, predicted %+v, critical path %v", at, to, rep.DiskBytes, rep.Predicted, rep.Critical)
		if rep.DiskBytes < seedBytes+24<<20 || rep.DiskBytes > 2*seedBytes+60<<20 {
			t.Errorf("%d bytes of disk on the wire, for 24 MiB that are written and %d that are read", rep.DiskBytes, seedBytes)
		}
		at = to
		p.w.moved("web", at)
		p.reads(at, sum)
		p.whole(at)
	}
	files, err := filepath.Glob(filepath.Join(p.w.disksOf("montreal"), "*"+filepath.Base(seed.ID)+".raw"))
	if err != nil || len(files) != 1 {
		t.Errorf("montreal has %v, %v", files, err)
	}
}

// reads has the guest read the whole of its second disk, which must have that SHA-256, and try to write to it.
func (p *trial) reads(host, sum string) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), time.Minute)
	defer cancel()
	var got guest.Executed
	p.must(p.w.agents[host].client.CallGuest(ctx, "web", "exec", guest.Exec{TimeoutMS: 50_000,
		Command: "echo 3 > /proc/sys/vm/drop_caches; sha256sum /dev/vdb; cat /sys/block/vdb/ro; dd if=/dev/zero of=/dev/vdb bs=512 count=1 2>/dev/null && echo written"}, &got))
	if want := sum + "  /dev/vdb\n1\n"; got.Stdout != want {
		p.Errorf("on %s it reads %q, want %q", host, strings.TrimSpace(got.Stdout), want)
	}
}
