package compare

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"godwit/migration"
	"godwit/vm/qemu"
)

// TestLatePagesAreCompared: what follows a guest is held against what it was at the source,
// each page as it is handed to QEMU.
func TestLatePagesAreCompared(t *testing.T) {
	t.Setenv(Variable, t.TempDir())
	page := bytes.Repeat([]byte{7}, qemu.PageSize)
	zero := qemu.Sum(make([]byte, qemu.PageSize))
	var was bytes.Buffer
	to := gob.NewEncoder(&was)
	if err := errors.Join(to.Encode(qemu.Sums{"pc.ram": {qemu.Sum(page), zero, zero, 5}}), to.Encode(qemu.Memory{PID: 1})); err != nil {
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
			var late Late
			hears, size := late.Hears(), int64(4*qemu.PageSize)
			hears("pc.ram", 0, size, page)
			hears("pc.ram", qemu.PageSize, size, nil)
			hears("pc.ram", 2*qemu.PageSize, size, c.third)
			hears("new", 0, size, page) // the source's QEMU has no such block
			said := late.Compare(plan)
			if (said != nil) != (c.want != "") || said != nil && !strings.Contains(said.Error(), c.want) {
				t.Errorf("%v, want %q", said, c.want)
			}
			data, err := os.ReadFile(filepath.Join(dir(), plan.ID+"-late.json"))
			var found Found
			if err != nil || json.Unmarshal(data, &found) != nil || found.Pages != 3 || found.Problem() != c.want {
				t.Errorf("%s, %v, %q", data, err, found.Problem())
			}
		})
	}
}

// TestNothingIsCompared: without the lab's word nobody reads a page.
func TestNothingIsCompared(t *testing.T) {
	t.Setenv(Variable, "")
	var late Late
	at, err := MemoryOf(t.Context(), &qemu.Process{})
	if at != nil || err != nil || late.Hears() != nil || late.Compare(migration.Plan{}) != nil {
		t.Errorf("%v, %v", at, err)
	}
}
