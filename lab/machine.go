package lab

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"godwit/vm/qemu"
)

// machine describes what the run ran on.
func machine(w *world) map[string]string {
	out := map[string]string{}
	if kernel, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		out["kernel"] = strings.TrimSpace(string(kernel))
	}
	for _, g := range w.scenario.Guests {
		out["guest "+g.Name] = fmt.Sprintf("%s, ready after %.1f s", g.Image, w.booted[g.Name].Seconds())
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if host, err := qemu.ThisHost(ctx); err == nil {
		out["qemu"], out["accel"] = host.Version.String(), host.Accel
	}
	return out
}
