package record

import (
	"os"
	"strings"
	"testing"

	"godwit/transfer/pages"
)

// TestCodingNames: every coding is told by the name that docs/datapath.md has for it.
func TestCodingNames(t *testing.T) {
	doc, err := os.ReadFile("../../docs/datapath.md")
	if err != nil {
		t.Fatal(err)
	}
	for coding, name := range CodingNames {
		if coding != int(pages.None) && (name == "" || !strings.Contains(string(doc), "\n| "+name+" |")) {
			t.Errorf("docs/datapath.md has no coding %q (%d)", name, coding)
		}
	}
}
