package agent

import (
	"encoding/json"
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
