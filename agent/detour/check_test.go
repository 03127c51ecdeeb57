package detour

import (
	"strings"
	"testing"

	"godwit/agent/config"
)

// TestIDsOfLongNames: the id of a detour that leads by a home and another host is one that can be read again, however long
// the names are that `godwit init` makes certificates of.
func TestIDsOfLongNames(t *testing.T) {
	long := func(letter string) string {
		name := letter
		for config.IsHostName(name + letter) {
			name += letter
		}
		return name
	}
	home, host := long("a"), long("b")
	for id, well := range map[string]bool{
		"m-00000001": true, "m-00000001-dallas": true, "m-00000001-" + home: true, "m-00000001-" + home + "-" + host: true,
		"m-00000001-" + home + "-" + host + strings.Repeat("c", 300): false, "m-1": false, "m-00000001-a/b": false, "m-00000001-": false,
	} {
		all := writtenDetours{id: {ID: id}}
		if err := all.Check(); (err == nil || !strings.Contains(err.Error(), "its id is not one")) != well {
			t.Errorf("%.40s…, of %d bytes: %v", id, len(id), err)
		}
	}
}
