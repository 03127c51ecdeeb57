package lab

import (
	"context"
	"fmt"

	"godwit/agent/config"
	"godwit/lab/image"
	"godwit/lab/scenario"
)

// findImages finds the image tiny, which may be missing where there are no guests, and has the others built that the
// scenario's guests boot.
func (w *world) findImages(ctx context.Context, tell func(string)) error {
	kernel, initrd, err := image.Find()
	switch {
	case err == nil:
		w.image = config.Image{Kernel: kernel, Initrd: initrd, Cmdline: image.Cmdline}
	case len(w.scenario.Guests) > 0:
		return err
	}
	w.images = map[string]config.Image{}
	for _, g := range w.scenario.Guests {
		name, more := imageOf(g)
		if _, known := w.images[name]; known || g.Image == image.Tiny {
			continue
		}
		found, err := image.Ensure(ctx, g.Image, tell)
		if err != nil {
			return fmt.Errorf("guest %s: %w", g.Name, err)
		}
		w.images[name] = config.Image{Kernel: found.Kernel, Initrd: found.Initrd, Cmdline: found.Cmdline + more, Root: found.Root}
	}
	return nil
}

// imageOf is what agents call the image of a guest, and what its kernel is told more than the
// image says: where nobody in it can be asked, NetworkManager has the NICs (scripts/debian-image).
func imageOf(g scenario.Guest) (name, more string) {
	if g.Agent == "dhcp" {
		return g.Image + "-dhcp", " godwit.network-manager"
	}
	return g.Image, ""
}
