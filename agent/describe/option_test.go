package describe

import (
	"reflect"
	"strings"
	"testing"
)

// FuzzOption: what is written reads as the same, and in QEMU's own form is the same, to the letter.
func FuzzOption(f *testing.F) {
	for _, word := range []string{
		"tap,id=net0,fd=5", "file=/srv/a,,b.iso,if=none", ",,,", "a=b=c,,d", "server,nowait",
		`{"driver": "qcow2", "file": {"driver": "file", "filename": "/srv/a,b"}, "read-only": false, "list": [1, "x"], "none": null}`,
	} {
		f.Add(word)
	}
	f.Fuzz(func(t *testing.T, word string) {
		if strings.ContainsRune(word, 0) { // ends an argument
			return
		}
		o, err := parse(word)
		if err != nil {
			return
		}
		text := o.String()
		if !strings.HasPrefix(word, "{") && text != word {
			t.Errorf("%q became %q", word, text)
		}
		if strings.HasPrefix(text, "{") || strings.Contains(text, "\x00") {
			return
		}
		again, err := parse(text)
		if err != nil || again.String() != text || !strings.HasPrefix(word, "{") && !reflect.DeepEqual(o, again) {
			t.Errorf("%q: %v, %v", text, again, err)
		}
	})
}
