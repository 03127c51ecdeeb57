package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"godwit/agent/agenttest"
	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/guests"
	"godwit/internal/need"
	"godwit/migration"
	"godwit/netstate/netns"
	"godwit/vm/qemu"
)

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

// TestStartWithoutAddress: a guest's addresses are chosen while it boots. Where none is free nothing is left of it.
func TestStartWithoutAddress(t *testing.T) {
	need.QEMU(t)
	boots := filepath.Join(t.TempDir(), "vmlinuz")
	if err := os.WriteFile(boots, make([]byte, 64<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	a := between(t)
	a.config.Image = config.Image{Kernel: boots}
	a.config.Network.V4, a.config.Network.First = netip.MustParsePrefix("10.2.1.0/28"), 15
	a.ctx = t.Context()
	_, err := a.startGuest(t.Context(), config.Description{Name: "web", Memory: 32 << 20})
	agenttest.Refused(t, "no address", err, migration.CodeAddress, "none is free in 10.2.1.0/28")
	if left, err := qemu.Living(filepath.Join(a.config.Run, "guests")); err != nil || len(left) != 0 {
		t.Errorf("%v live, %v", left, err)
	}
	if left, err := os.ReadDir(filepath.Join(a.config.Run, "guests")); err != nil || len(left) != 0 {
		t.Errorf("%v are left, %v", left, err)
	}
	if err := a.guests.NameFree("web"); err != nil {
		t.Error(err)
	}
}

// TestEndsAsAGuestStarts: an agent that is told to end as it starts a guest undoes that first. Its QEMU, which nothing
// waited for, was there for a while after the agent, with the guest's taps, or for ever.
func TestEndsAsAGuestStarts(t *testing.T) {
	need.Root(t)
	dir := t.TempDir()
	began := filepath.Join(dir, "began")
	script := fmt.Sprintf("#!/bin/sh\n[ $1 != --version ] || exec echo QEMU emulator version 10.0.0\necho $$ >%s.new && mv %[1]s.new %[1]s\nexec sleep 1000\n", began)
	if err := os.WriteFile(filepath.Join(dir, qemu.Program), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	a := between(t)
	a.config.Image, a.config.Network.MTU = config.Image{Kernel: began, Initrd: began}, 1500
	var end context.CancelFunc
	a.ctx, end = context.WithCancel(t.Context())
	const asked = `{"name": "web", "memory": 33554432, "nics": [{"mac": "52:54:00:00:00:0a"}, {"mac": "52:54:00:00:00:0b"}]}`
	answered := make(chan error, 1)
	go func() {
		answered <- netns.Once(func() error {
			if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: a.config.Network.Bridge}}); err != nil {
				return err
			}
			_, err := a.apiStartGuest(httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/guests", strings.NewReader(asked)))
			return err
		})
	}()
	var pid int
	for limit := need.Patient(20 * time.Second); pid == 0; time.Sleep(10 * time.Millisecond) {
		text, _ := os.ReadFile(began)
		if pid, _ = strconv.Atoi(strings.TrimSpace(string(text))); limit.Over() {
			t.Fatal("no QEMU")
		}
		if len(answered) > 0 {
			t.Fatal(<-answered)
		}
	}
	end()
	a.serveUntil(a.ctx)
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		syscall.Kill(pid, syscall.SIGKILL) //nolint:errcheck // the test has failed
		t.Errorf("the agent has ended, and QEMU is there: %v", err)
	}
	if left, err := os.ReadDir(filepath.Join(a.config.Run, "guests")); err != nil || len(left) != 0 {
		t.Errorf("%v are left, %v", left, err)
	}
	if err := <-answered; err == nil {
		t.Error("whoever asked for it is told that it runs")
	}
}

// TestStartWhileOneComes: a guest that is started, or adopted, by the name of one that a migration brings here is
// refused until that is over, also where that one was stopped as it landed: its migration would take itself to have the
// name still.
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
		if err := a.guests.NameFree(d.Name); err != nil {
			t.Errorf("%s: then %v", landing, err)
		}
	}
}

// TestWordsOutliveTheGuest: what a guest has said to its console is kept when its directory goes.
func TestWordsOutliveTheGuest(t *testing.T) {
	a := bareAgent(t, &config.Config{Host: "paris"})
	g := guests.New(care.Held{Description: config.Description{Name: "web"}, Dir: a.guestDir("web", "9999")}, nil)
	if err := errors.Join(os.MkdirAll(g.Held().Dir, 0o700), os.WriteFile(filepath.Join(g.Held().Dir, "serial.log"), []byte("last words"), 0o600)); err != nil {
		t.Fatal(err)
	}
	a.dismantle(g)
	kept, err := os.ReadFile(a.config.StatePath("logs", "web-9999-serial.log"))
	if _, here := os.Stat(g.Held().Dir); err != nil || string(kept) != "last words" || !errors.Is(here, os.ErrNotExist) {
		t.Errorf("%q is kept, %v; its directory: %v", kept, err, here)
	}
}
