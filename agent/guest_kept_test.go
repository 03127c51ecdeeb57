package agent

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/guests"
	"godwit/migration"
	"godwit/vm"
)

// endedGuest is one that came to rome, and has ended there.
func endedGuest(a *Agent, name string) *guests.Guest {
	done := make(chan struct{})
	close(done)
	return guests.New(care.Held{
		Description: config.Description{
			Name: name, Memory: 1 << 30, VCPUs: 2, NICs: []config.NIC{{MAC: "52:54:00:00:00:0a"}}, Network: "tunnel",
			Start: []string{"qemu-system-x86_64", "-S", "-incoming", "defer", "-qmp", "unix:{qmp},server=on,wait=off"},
			Disks: []vm.Disk{{ID: "root", Path: a.config.StatePath("disks", name+"-3-root.raw"), Format: "raw"}},
		},
		Dir: a.guestDir(name, "3"), Epoch: 3,
		Addresses: []migration.Address{{Prefix: netip.MustParsePrefix("10.1.1.20/24"), Gateway: netip.MustParseAddr("10.1.1.1"), Home: "paris", Handover: "m-00000001"}},
	}, gone{done: done})
}

// TestEndedGuestIsDescribed: of a guest that powered off, or whose host rebooted, stays what is needed to start it by hand
// and to adopt it again, and the log says where.
func TestEndedGuestIsDescribed(t *testing.T) {
	for name, end := range map[string]func(*Agent, *guests.Guest){
		"powered off":   func(a *Agent, g *guests.Guest) { a.forgetIfEnded(t.Context(), g) },
		"host rebooted": func(a *Agent, g *guests.Guest) { a.forgetLost(map[string]*guests.Guest{"web": g}) },
	} {
		t.Run(name, func(t *testing.T) {
			a := between(t)
			var said bytes.Buffer
			a.log = slog.New(slog.NewTextHandler(&said, nil))
			g := underCare(t, a.guests, "web", endedGuest(a, "web"))
			end(a, g)
			path := a.config.StatePath("ended-guests", "web.yaml")
			d, err := config.LoadDescription(path)
			if err != nil || found(a.guests, "web") != nil || !strings.Contains(said.String(), "description="+path) {
				t.Fatalf("%v, under care %v, said %s", err, found(a.guests, "web"), said.String())
			}
			had := g.Held().Description
			if d.Check() != nil || d.CheckAdopted() != nil || d.Memory != had.Memory || d.VCPUs != 2 || d.Network != "tunnel" || !slices.Equal(d.Start, had.Start) ||
				!slices.Equal(d.Disks, had.Disks) || len(d.Addresses) != 1 || d.Addresses[0].Prefix != g.Held().Addresses[0].Prefix || d.Addresses[0].Home != "paris" {
				t.Errorf("%+v", d)
			}
			text, err := os.ReadFile(path)
			if err != nil || !strings.Contains(string(text), "# look: it ended on rome at ") || !strings.Contains(string(text), "on no host has it") || !strings.Contains(string(text), "paris leads 10.1.1.20 here no more") {
				t.Errorf("%v\n%s", err, text)
			}
		})
	}
}

// TestNoDescriptionOfAnImage: the lab's own guests need none.
func TestNoDescriptionOfAnImage(t *testing.T) {
	a := between(t)
	g := endedGuest(a, "web")
	g.Remember(func(h *care.Held) { h.Description.Start = nil })
	a.forgetIfEnded(t.Context(), underCare(t, a.guests, "web", g))
	if _, err := os.Stat(a.config.StatePath("ended-guests")); !os.IsNotExist(err) {
		t.Error(err)
	}
}

// TestDescriptionsAreBounded: the oldest go.
func TestDescriptionsAreBounded(t *testing.T) {
	a := between(t)
	dir := a.config.StatePath("ended-guests")
	for n := range mostEnded + 1 {
		path := a.keepDescription(endedGuest(a, fmt.Sprint("web", n)).Held(), "")
		at := time.Unix(1e9+int64(n), 0)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	a.keepDescription(endedGuest(a, "last").Held(), "")
	left, err := filepath.Glob(dir + "/*")
	if err != nil || len(left) != mostEnded || slices.Contains(left, dir+"/web1.yaml") || !slices.Contains(left, dir+"/web2.yaml") || !slices.Contains(left, dir+"/last.yaml") {
		t.Errorf("%v, %d: %v", err, len(left), left)
	}
}
