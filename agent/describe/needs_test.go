package describe

import (
	"strings"
	"testing"
)

// looks are what a person is told of a guest, a line each.
func looks(t *testing.T, r Running) string {
	t.Helper()
	found, err := Of(r)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(found.Look, "\n")
}

// TestStartedAgain: a person is told what may start the QEMU that ends here, and of nothing where nothing is known to.
func TestStartedAgain(t *testing.T) {
	r := running(strings.Fields("-netdev tap,id=net0,fd=5")...)
	if got := looks(t, r); strings.Contains(got, "second copy") {
		t.Errorf("nothing starts it again: %s", got)
	}
	r.Facts.Unit = "web.service"
	if got := looks(t, r); !strings.Contains(got, "web.service runs its QEMU") || !strings.Contains(got, "second copy") {
		t.Error(got)
	}
}
