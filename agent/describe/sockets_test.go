package describe

import (
	"strings"
	"testing"
)

// TestSocketsOfOneName: two that lie in directories of their own here do not meet in the guest's elsewhere; one that is
// named twice stays one.
func TestSocketsOfOneName(t *testing.T) {
	found, err := Of(running(strings.Fields("-netdev tap,id=net0,fd=5 -chardev socket,id=a,path=/run/a/port,server=on -chardev socket,id=b,path=/run/b/port,server=on" +
		" -serial file:/var/log/web -serial file:/var/log/web -vnc unix:/run/vnc/port")...))
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Join(found.Description.Start, " ")
	for part, want := range map[string]int{"path={dir}/port,": 1, "path={dir}/2-port,": 1, "unix:{dir}/3-port": 1, "file:{dir}/web": 2} {
		if n := strings.Count(words, part); n != want {
			t.Errorf("%q: %d times, want %d: %s", part, n, want, words)
		}
	}
}

// TestPortListens: a person is told where a port of the guest's listens, which may be taken elsewhere; where it is a
// client's it is not.
func TestPortListens(t *testing.T) {
	for words, told := range map[string]bool{"socket,id=a,host=127.0.0.1,port=4444,server=on": true, "socket,id=a,host=192.0.2.1,port=4444": false} {
		found, err := Of(running(strings.Fields("-netdev tap,id=net0,fd=5 -chardev " + words)...))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(strings.Join(found.Look, "\n"), "listens at port 4444 (chardev a)"); got != told {
			t.Errorf("%s: %q", words, found.Look)
		}
	}
}
