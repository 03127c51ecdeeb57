package lab

import (
	"errors"
	"strings"
	"testing"

	"godwit/lab/image"
	"godwit/lab/scenario"
)

// What is missing on the machine is said before anything is built.
func TestNeeds(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for want, s := range map[string]*scenario.Scenario{
		"":                       {},
		"qemu-system-x86_64 is ": {Guests: []scenario.Guest{{Name: "web"}}},
		"iperf3 is ":             {Traffic: []scenario.Traffic{{Kind: "iperf3"}}},
	} {
		err := (&world{scenario: s}).needs()
		if (err == nil) != (want == "") || err != nil && (!strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), "make build")) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// TestNoImageWithoutGuests: a network alone can be built where there is no image.
func TestNoImageWithoutGuests(t *testing.T) {
	t.Setenv(image.Variable, t.TempDir())
	quiet := func(string) {}
	if err := (&world{scenario: &scenario.Scenario{}}).findImages(t.Context(), quiet); err != nil {
		t.Error(err)
	}
	guests := &scenario.Scenario{Guests: []scenario.Guest{{Name: "web", Image: image.Tiny}}}
	if err := (&world{scenario: guests}).findImages(t.Context(), quiet); !errors.Is(err, image.ErrMissing) {
		t.Errorf("a guest without an image: %v", err)
	}
}
