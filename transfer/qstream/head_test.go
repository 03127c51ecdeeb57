package qstream_test

import (
	"bytes"
	"fmt"
	"testing"

	"godwit/transfer/qstream"
)

// TestLongHead: what comes before RAM may be longer than what is read at once, and that may end within a command, or
// within RAM's header.
func TestLongHead(t *testing.T) {
	what := bytes.Repeat([]byte{2}, 1<<20) // follows
	ping := []byte("\x08\x00\x02\x00\x04\x00\x00\x00\x01")
	for _, commands := range []int{58_251, 58_252, 58_300} { // what is read at once ends with one of these, or some before the last
		for _, machine := range []string{"m", "pc", "microvm8"} {
			s := new(script).raw("5145564d 00000003 07").raw(fmt.Sprintf("%08x", len(machine))).text(machine).text(string(bytes.Repeat(ping, commands)))
			whole := s.raw("01 00000007").name("ram").raw("00000000 00000004").be64(1<<12 | 4).name("a").be64(1 << 12).raw(eosFooter).Bytes()
			event, err := qstream.NewParser(bytes.NewReader(append(whole, what...))).Next()
			if err != nil {
				t.Fatal(err)
			}
			pro, ok := event.(*qstream.Prologue)
			if !ok || len(pro.Commands) != commands || pro.Commands[commands-1].At != len(pro.Head)-len(ping) {
				t.Fatalf("%d commands after %q: %T", commands, machine, event)
			}
			var again bytes.Buffer
			if err := qstream.NewWriter(&again, pro).Begin(); err != nil || !bytes.Equal(again.Bytes(), whole) {
				t.Errorf("%d commands after %q: %v, or another stream", commands, machine, err)
			}
		}
	}
}
