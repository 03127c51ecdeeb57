package qemu_test

import (
	"encoding/json"
	"net"
	"path/filepath"
	"testing"

	"godwit/vm/qemu"
	"godwit/vm/qemu/qmp"
)

// settings are what a QEMU says of its capabilities and parameters of migrations, but for the events.
func settings(t *testing.T, p *qemu.Process) string {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "unix", filepath.Join(p.Dir(), "look.sock"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := qmp.New(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var caps []struct {
		Capability string
		State      bool
	}
	var params map[string]any
	if err := c.Do(t.Context(), "query-migrate-capabilities", nil, &caps); err != nil {
		t.Fatal(err)
	}
	if err := c.Do(t.Context(), "query-migrate-parameters", nil, &params); err != nil {
		t.Fatal(err)
	}
	for _, one := range caps {
		if one.Capability != "events" {
			params["is "+one.Capability] = one.State
		}
	}
	text, err := json.MarshalIndent(params, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestAsBefore: a migration that was cancelled leaves nothing set in a QEMU that it had not found, also where another
// agent cancels it.
func TestAsBefore(t *testing.T) {
	p := start(t, firmware(t))
	before := settings(t, p)
	sends(t, p)
	if settings(t, p) == before {
		t.Error("a migration sets nothing")
	}
	if err := p.CancelMigration(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := settings(t, p); after != before {
		t.Errorf("%s\nis now\n%s", before, after)
	}
	sends(t, p)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := qemu.Attach(t.Context(), p.Dir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { again.Kill() })
	if err := again.CancelMigration(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := settings(t, again); after != before {
		t.Errorf("%s\nis now, after another agent,\n%s", before, after)
	}
}
