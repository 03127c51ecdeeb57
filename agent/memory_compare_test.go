package agent

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"godwit/agent/record"
	"godwit/migration"
	"godwit/vm/qemu"
)

// TestLatePagesAreCompared: what follows a guest is held against what it was at the source,
// each page as it is handed to QEMU.
func TestLatePagesAreCompared(t *testing.T) {
	memoryDir = t.TempDir()
	t.Cleanup(func() { memoryDir = "" })
	page := bytes.Repeat([]byte{7}, qemu.PageSize)
	zero := qemu.Sum(make([]byte, qemu.PageSize))
	var was bytes.Buffer
	if err := gob.NewEncoder(&was).Encode(qemu.Sums{"pc.ram": {qemu.Sum(page), zero, zero, 5}}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		third []byte // is zeros at the source
		want  string
	}{
		"whole":   {nil, ""},
		"damaged": {page, "memory of guest web is not what it was: 1 of 3 pages differ, the first at pc.ram+0x2000"},
	} {
		t.Run(name, func(t *testing.T) {
			plan := migration.Plan{ID: name, Guest: "web", To: "sanjose"}
			if err := os.WriteFile(sumsFile(plan.ID), was.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
			m := &incoming{plan: plan, rec: record.New("sanjose", plan, time.Now())}
			hears, size := m.late.hears(), int64(4*qemu.PageSize)
			hears("pc.ram", 0, size, page)
			hears("pc.ram", qemu.PageSize, size, nil)
			hears("pc.ram", 2*qemu.PageSize, size, c.third)
			hears("new", 0, size, page) // the source's QEMU has no such block
			m.compareLate()
			data, err := os.ReadFile(filepath.Join(memoryDir, plan.ID+"-late.json"))
			var found Compared
			if err != nil || json.Unmarshal(data, &found) != nil || found.Pages != 3 || found.Problem() != c.want {
				t.Errorf("%s, %v, %q", data, err, found.Problem())
			}
			if notes := m.rec.Snapshot().Notes; (len(notes) == 1) != (c.want != "") || len(notes) > 0 && !strings.Contains(notes[0], c.want) {
				t.Errorf("notes %q", notes)
			}
		})
	}
}

// TestNothingIsCompared: without the lab's word nobody reads a page.
func TestNothingIsCompared(t *testing.T) {
	m := &incoming{}
	if at, err := memoryOf(t.Context(), &qemu.Process{}); at != nil || err != nil || m.late.hears() != nil {
		t.Errorf("%v, %v", at, err)
	}
}
