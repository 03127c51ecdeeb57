package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"godwit/agent/config"
	"godwit/internal/need"
	"godwit/migration"
)

// TestEndOfALog: a guest that floods its console does not fill the agent's memory with it.
func TestEndOfALog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "serial.log")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, c := range []struct {
		size int64
		want string
	}{{0, ""}, {3, "end"}, {1 << 34, "\x00\x00end"}} { // sparse
		if _, err := f.WriteAt([]byte("end"), max(0, c.size-3)); c.size > 0 && err != nil {
			t.Fatal(err)
		} else if c.size == 0 {
			if err := f.Truncate(0); err != nil {
				t.Fatal(err)
			}
		}
		if end, err := readEnd(path, 5); err != nil || string(end) != c.want {
			t.Errorf("%d bytes: %q, %v; want %q", c.size, end, err, c.want)
		}
	}
}

// TestStartWithoutQEMU: a guest whose QEMU does not start is an error that says so, and nothing of it is left.
func TestStartWithoutQEMU(t *testing.T) {
	need.QEMU(t)
	missing := filepath.Join(t.TempDir(), "vmlinuz")
	a := bareAgent(t, &config.Config{Host: "rome", Image: config.Image{Kernel: missing, Initrd: missing}})
	a.ctx = t.Context()
	_, err := a.startGuest(t.Context(), config.Description{Name: "web", Memory: 32 << 20})
	if err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("%v; want %s in it", err, missing)
	}
	if left, err := os.ReadDir(filepath.Join(a.config.Run, "guests")); err != nil || len(left) != 0 {
		t.Errorf("%v are left, %v", left, err)
	}
}

// TestStartWhileOneComes: a guest that is started, or adopted, by the name of one that a migration brings here is refused until that is over,
// also where that one was stopped as it landed: its migration would take itself to have the name still.
func TestStartWhileOneComes(t *testing.T) {
	a := between(t)
	d := goodPreparation().Description
	m := &incoming{a: a, plan: migration.Plan{ID: "m-00000001", Guest: d.Name}}
	a.incoming[m.plan.ID] = m
	for landing, over := range map[migration.Landing]bool{migration.Receiving: false, migration.Adopting: false, migration.Declining: false, migration.Landed: true, migration.Gone: true} {
		m.state.Landing = landing
		_, err := a.startGuest(t.Context(), d)
		if says := err != nil && strings.Contains(err.Error(), "migration m-00000001 brings"); says == over {
			t.Errorf("%s: %v", landing, err)
		}
		if err := a.guests.nameFree(d.Name); err != nil {
			t.Errorf("%s: then %v", landing, err)
		}
	}
}
