package agent

import (
	"encoding/json"
	"errors"
	"testing"

	"godwit/vm"
	"godwit/vm/qemu"
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

// TestNotWhole: why a guest could not be loaded is said, and once.
func TestNotWhole(t *testing.T) {
	const failed, device = "load of migration failed: Invalid argument", "Unknown savevm section or instance 'serial' 0"
	full := errors.New("write mirror: no space left on device")
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
	} {
		if got := notWhole(errors.New(c.err), c.lanes, vm.Progress{Error: c.progress}, c.said); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
