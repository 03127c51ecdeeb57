package guest

import (
	"context"
	"encoding/json"
	"net/netip"
	"testing"
)

// TestConnectionsInParts: a list that does not fit into a line comes in parts, once each.
func TestConnectionsInParts(t *testing.T) {
	const many = 2*ConnectionsListed + 7
	var all []Connection
	for i := range uint16(many) {
		all = append(all, Connection{Kind: KindTCP, Local: netip.AddrPortFrom(netip.MustParseAddr("10.1.1.2"), i)})
	}
	for _, c := range []struct {
		name            string
		number          uint64 // that the guest gives its list; 0: it knows of no parts
		kept            int    // as long it keeps it
		listed, omitted int
	}{
		{"whole", 3, many, many, 0},
		{"no parts", 0, many, ConnectionsListed, many - ConnectionsListed},
		{"another list was begun", 3, ConnectionsListed, ConnectionsListed, many - ConnectionsListed},
	} {
		asked := 0
		_, p := serve(t, map[string]Handler{ConnectionsMethod: func(_ context.Context, _ string, raw json.RawMessage) (any, error) {
			var ask connectionsParams
			if err := json.Unmarshal(raw, &ask); err != nil || ask.From > 0 && ask.Number != c.number {
				t.Errorf("%s: asked for %s, %v", c.name, raw, err)
			}
			if asked++; ask.From >= c.kept {
				return Connections{List: []Connection{}}, nil
			}
			end := min(ask.From+ConnectionsListed, many)
			return Connections{List: all[ask.From:end], Omitted: many - end, Number: c.number}, nil
		}})
		p.piece = 4 << 10
		client, err := NewClient(t.Context(), p.connect(t))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		got, err := client.Connections(t.Context(), netip.MustParseAddr("10.1.1.2"))
		if err != nil || len(got.List) != c.listed || got.Omitted != c.omitted {
			t.Errorf("%s: %d listed, %d omitted after %d questions, %v; want %d, %d", c.name, len(got.List), got.Omitted, asked, err, c.listed, c.omitted)
		}
		for i, one := range got.List {
			if one.Local.Port() != uint16(i) {
				t.Fatalf("%s: number %d is %v", c.name, i, one.Local)
			}
		}
	}
}
