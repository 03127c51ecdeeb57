package lab

import (
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"godwit/agent/record"
	"godwit/lab/report"
)

// fields are the names that a type's values have in JSON, those within them too.
func fields(t reflect.Type, seen map[reflect.Type]bool) (names []string) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || seen[t] {
		return nil
	}
	seen[t] = true
	for i := range t.NumField() {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); name != "" && name != "-" {
			names = append(names, name)
		}
		names = append(names, fields(t.Field(i).Type, seen)...)
	}
	return names
}

// TestEveryFieldIsDocumented: docs/report.md has each name of report.json, and of what an agent tells of its data path.
func TestEveryFieldIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/report.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[reflect.Type]bool{reflect.TypeFor[json.RawMessage](): true}
	names := append(fields(reflect.TypeFor[report.Report](), seen), fields(reflect.TypeFor[record.DataPath](), seen)...)
	if len(names) < 120 {
		t.Errorf("%d names were found: %v", len(names), names)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if ok, err := regexp.Match("[`.]"+name+"\\b", text); !ok {
			t.Errorf("%s is not in docs/report.md (%v)", name, err)
		}
	}
}
