package capable

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"godwit/vm"
)

// TestOtherDisks: a start command that names a file of its own for a disk is refused before anything is written to it.
func TestOtherDisks(t *testing.T) {
	dir := t.TempDir()
	made, other, link := filepath.Join(dir, "made.raw"), filepath.Join(dir, "other.raw"), filepath.Join(dir, "link.raw")
	for _, path := range []string{made, other} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(made, link); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		has   []vm.Disk
		words string
	}{
		"the file":           {[]vm.Disk{{ID: "swap", Path: other}, {ID: "vda", Path: made}}, ""},
		"by a link":          {[]vm.Disk{{ID: "vda", Path: link}}, ""},
		"with options":       {[]vm.Disk{{ID: "vda", Path: `json:{"driver":"raw","offset":0,"file":{"filename":"` + made + `"}}`}}, ""},
		"another file":       {[]vm.Disk{{ID: "vda", Path: other}}, "write {disk0} there"},
		"no such disk":       {[]vm.Disk{{ID: "vdb", Path: made}}, "makes no disk vda; give a drive or block node of that name the file {disk0}"},
		"read-only there":    {[]vm.Disk{{ID: "vda", Path: made, ReadOnly: true}}, "has its disk vda with read-only=on, the guest with read-only=off; write that"},
		"nothing to compare": {[]vm.Disk{{ID: "vda", Path: "nbd://192.0.2.1/x"}}, "has its disk vda in nbd://192.0.2.1/x"},
	} {
		err := OtherDisks("rome", Guest{Name: "web"}, []vm.Disk{{ID: "vda", Path: made}}, c.has)
		if c.words == "" && err != nil || c.words != "" && (err == nil || !strings.Contains(err.Error(), c.words)) {
			t.Errorf("%s: %v, want %q", name, err, c.words)
		}
	}
}
