package guest

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode"
)

// FuzzAnswers: whatever a guest answers, what is taken of it can be shown, and written down and read again; why it is
// not taken is one line.
func FuzzAnswers(f *testing.F) {
	for _, said := range []string{
		`{"protocol":1,"kernel":"6.1","nics":[{"name":"eth0","mac":"52:54:00:00:00:01","addrs":["10.1.1.5/24","fd00::5/64",""]}],"unread":{"used":-1}}`,
		`{"device":"eth0","endpoint_ids":"AQI="}`, `{"total":-1,"unable":[{"local":"10.1.1.5:80","remote":"[fe80::1%eth0]:1","why":"x"}],"endpoints":"AQ=="}`,
		`{"mptcp":1,"sockets":[{"local":"","remote":"[::ffff:10.1.1.5]:80","state":"\u001b[2J"}]}`,
		`{"list":[{"kind":"tcp","local":"[fe80::1%a]b]:1","working":["10.1.1.5:80"]}],"omitted":-7}`, `{"meter":[{"src":"fe80::1%eth0"}]}`, `null`, `[]`, `1e999`,
	} {
		f.Add(said)
	}
	f.Fuzz(func(t *testing.T, said string) {
		message, err := ParseMessage([]byte(`{"id":"1","result":` + said + `}`))
		if err != nil {
			return
		}
		for _, into := range []func() any{
			func() any { return new(Info) }, func() any { return new(Configured) }, func() any { return new(Joins) }, func() any { return new(Users) },
			func() any { return new(Connections) }, func() any { return new(Verified) }, func() any { return new(Counters) }, func() any { return new(Listeners) },
		} {
			result := into()
			if err := decodeAnswer("x", message, result); err != nil {
				if said := err.Error(); len(said) > 4096 || strings.ContainsFunc(said, func(r rune) bool { return !unicode.IsPrint(r) }) {
					t.Errorf("%T: %.5000q", result, said)
				}
				continue
			}
			written, err := json.Marshal(result)
			if err != nil {
				t.Fatalf("%T: %+v: %v", result, result, err)
			}
			again := into()
			if err := json.Unmarshal(written, again); err != nil {
				t.Fatalf("%T: %s: %v", result, written, err)
			}
			twice, err := json.Marshal(again)
			if err != nil || !reflect.DeepEqual(twice, written) {
				t.Fatalf("%T: %s is then %s, %v", result, written, twice, err)
			}
		}
	})
}
