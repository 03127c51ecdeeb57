package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"godwit/agent/care"
	"godwit/agent/guests"
	"godwit/migration"
	"godwit/transfer/paths"
	"godwit/vm"
	"godwit/vm/qemu"
	"godwit/vm/qemu/qmp"
)

// TestAlike: a guest finds the NICs that it left: QEMU refuses one that announces itself, where they cannot.
// An older agent's guests do, and it does not say so.
func TestAlike(t *testing.T) {
	for told, announces := range map[string]bool{`{"Machine": "pc-q35-10.0", "Quiet": true}`: false, `{"Machine": "pc-q35-10.0"}`: true} {
		var facts vm.Facts
		if err := json.Unmarshal([]byte(told), &facts); err != nil {
			t.Fatal(err)
		}
		spec := alike(qemu.Spec{Machine: "q35"}, facts)
		if spec.Machine != "pc-q35-10.0" || spec.Announces != announces {
			t.Errorf("%s: %+v", told, spec)
		}
	}
}

// TestWaitingEnded: a QEMU that ends while it is made ready is told as that, and not as what could not be asked of it
// any more.
func TestWaitingEnded(t *testing.T) {
	closed := fmt.Errorf("prepare incoming migration: qmp migrate-set-parameters: %w", qmp.ErrClosed)
	full := &migration.Problem{Code: migration.CodeCapacity, Text: "host rome refuses guest web: its disk is full"}
	called, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx   context.Context
		guest *guests.Guest
		err   error
		ended bool
	}{
		"it was killed":     {t.Context(), guests.New(care.Held{}, endedMachine{}), closed, true},
		"all is well":       {t.Context(), guests.New(care.Held{}, endedMachine{}), nil, false},
		"it was called off": {called, guests.New(care.Held{}, endedMachine{}), closed, false},
		"before it was":     {t.Context(), guests.New(care.Held{}, nil), full, false},
		"before its guest":  {t.Context(), nil, full, false},
	} {
		m := &incoming{plan: migration.Plan{Guest: "web", To: "rome"}, work: &destinationWork{guest: c.guest}}
		err := m.waitingEnded(c.ctx, c.err)
		var why *migration.Problem
		switch told := errors.As(err, &why) && why.Code == migration.CodeHypervisor; {
		case told != c.ended, !told && !errors.Is(err, c.err):
			t.Errorf("%s: %v", name, err)
		case told:
			for _, word := range []string{"guest web", "rome", "signal: killed", "try again"} {
				if !strings.Contains(why.Text, word) {
					t.Errorf("%s: %q does not say %q", name, why.Text, word)
				}
			}
		}
	}
}

// TestNotWhole: why a guest could not be loaded is said, and once.
func TestNotWhole(t *testing.T) {
	const failed, device = "load of migration failed: Invalid argument", "Unknown savevm section or instance 'serial' 0"
	full := errors.New("write mirror: no space left on device")
	there := fmt.Errorf("lane: %w", &paths.PeerError{Text: "spill: no space left on device"})
	for _, c := range []struct {
		err                  string
		lanes                error
		progress, said, want string
	}{
		{"migration failed: " + failed, nil, failed, device, "migration failed: " + failed + ": " + device},
		{"migration failed: " + failed, nil, failed, "", "migration failed: " + failed},
		{"migration failed", nil, failed, "", "migration failed: " + failed},
		{"QEMU ended: exit status 1: " + device, nil, "", device, "QEMU ended: exit status 1: " + device},
		{"migration failed: " + failed, full, failed, device, full.Error()},
		{"migration failed: " + failed, there, failed, device, "what sends it on paris has ended: spill: no space left on device"},
	} {
		if got := notWhole(errors.New(c.err), c.lanes, "paris", vm.Progress{Error: c.progress}, c.said); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
