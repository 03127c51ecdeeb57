package guest

import (
	"context"
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
)

// TestLyingGuest: whatever a guest answers at length is an error that says what there is too much of; what a guest may
// have is taken.
func TestLyingGuest(t *testing.T) {
	many := func(n int, one string) string { return strings.Repeat(one+",", n-1) + one }
	nics := func(n, addrs int) string {
		return `{"nics":[` + many(n, `{"mac":"52:54:00:00:00:0a","addrs":[`+many(addrs, `"10.1.1.1/8"`)+`]}`) + `]}`
	}
	long := strings.Repeat("x", longestWord+1)
	ends := `"local":"10.1.1.1:1","remote":"10.1.1.2:2"`
	for what, c := range map[string]struct {
		result any
		answer string
		says   string
	}{
		"a host of containers":    {&Info{}, nics(500, 2), ""},
		"NICs":                    {&Info{}, nics(mostNICs+1, 1), "4097 NICs"},
		"addresses":               {&Info{}, nics(3, mostAddrs/3+1), "addresses"},
		"capabilities":            {&Info{}, `{"capabilities":[` + many(mostCapabilities+1, `"a"`) + `]}`, "257 capabilities"},
		"a capability":            {&Info{}, `{"capabilities":["` + long + `"]}`, "a capability of 129 bytes"},
		"a NIC's name":            {&Info{}, `{"nics":[{"name":"` + long + `"}]}`, "a NIC's name of 129 bytes"},
		"a name for a terminal":   {&Info{}, `{"nics":[{"name":"\u001b[2J"}]}`, `a NIC's name that cannot be shown: "\x1b[2J"`},
		"a zone for a terminal":   {&Joins{}, `{"unable":[{"remote":"[fe80::1%\n]:1"}]}`, `an address's zone that cannot be shown: "\n"`},
		"announced by two":        {&Configured{}, `{"device":"eth1","endpoint_ids":"AwQ="}`, ""},
		"announced by many":       {&Configured{}, `{"endpoint_ids":"` + strings.Repeat("AAAA", 86) + `"}`, "258 endpoints"},
		"some unable":             {&Joins{}, `{"unable":[` + many(200, `{`+ends+`}`) + `]}`, ""},
		"all unable":              {&Joins{}, `{"unable":[` + many(mostUnable+1, `{`+ends+`}`) + `]}`, "1001 connections that stay behind"},
		"ids used up":             {&Joins{}, `{"endpoints":"` + strings.Repeat("AAAA", 86) + `"}`, "258 endpoints"},
		"sockets":                 {&Users{}, `{"sockets":[` + many(mostSockets+1, `{`+ends+`}`) + `]}`, "1001 sockets"},
		"a socket's state":        {&Users{}, `{"sockets":[{"state":"` + long + `"}]}`, "a socket's state of 129 bytes"},
		"connections, as said":    {&Connections{}, `{"list":[` + many(ConnectionsListed, `{`+ends+`,"working":["10.1.1.1:1"]}`) + `]}`, ""},
		"connections":             {&Connections{}, `{"list":[` + many(ConnectionsMost+1, `{}`) + `]}`, "20001 connections"},
		"subflows":                {&Connections{}, `{"list":[{"working":[` + many(mostWorking+1, `"10.1.1.1:1"`) + `]}]}`, "65 subflows"},
		"an address with a zone":  {&Connections{}, `{"list":[{"local":"[fe80::1%` + long + `]:1"}]}`, "an address's zone of 129 bytes"},
		"a connection's kind":     {&Connections{}, `{"list":[{"kind":"` + long + `"}]}`, "a connection's kind of 129 bytes"},
		"listeners":               {&Listeners{}, `{"list":[` + many(ListenersListed+1, `{}`) + `]}`, "101 listeners"},
		"a listener's kind":       {&Listeners{}, `{"list":[{"kind":"` + long + `"}]}`, "a listener's kind of 129 bytes"},
		"errors":                  {&Verified{}, `{"errors":[` + many(mostErrors+1, `""`) + `]}`, "1001 errors"},
		"as many pairs as listed": {&Counters{}, `{"meter":[` + many(MostMetered, `{}`) + `]}`, ""},
		"metered pairs":           {&Counters{}, `{"meter":[` + many(MostMetered+1, `{}`) + `]}`, "4001 metered pairs"},
	} {
		err := decodeAnswer("ask", Message{Result: json.RawMessage(c.answer)}, c.result)
		if (err == nil) != (c.says == "") || err != nil && (!strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") || len(err.Error()) > 200) {
			t.Errorf("%s: %.300v, want %q", what, err, c.says)
		}
	}
}

// TestEndlessParts: a guest that lists its connections one by one is not asked for ever.
func TestEndlessParts(t *testing.T) {
	asked := 0
	one := Connection{Kind: KindTCP, Local: netip.MustParseAddrPort("10.1.1.2:1")}
	_, p := serve(t, map[string]Handler{ConnectionsMethod: func(context.Context, string, json.RawMessage) (any, error) {
		asked++
		return Connections{List: []Connection{one}, Omitted: 1, Number: 7}, nil
	}})
	client, err := NewClient(t.Context(), p.connect(t))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	all, err := client.Connections(t.Context(), one.Local.Addr())
	if err == nil || !strings.Contains(err.Error(), "more than 100 parts") || asked != mostParts {
		t.Errorf("%d connections by %d questions: %v", len(all.List), asked, err)
	}
}

// TestLongEvents: an event of which many may wait for a reader has no words of the guest's own length.
func TestLongEvents(t *testing.T) {
	long := strings.Repeat("x", longestWord+1)
	for line, known := range map[string]bool{
		`{"event":"join","call":"0123456789abcdef-7","total":2}`: true, `{"event":"join","call":"` + long + `"}`: false, `{"event":"` + long + `"}`: false,
	} {
		if _, err := ParseMessage([]byte(line)); (err == nil) != known {
			t.Errorf("%.40s: %v", line, err)
		}
	}
}
