package lab

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"godwit/agent/record"
	"godwit/lab/scenario"
	"godwit/lab/topo"
	"godwit/migration"
)

// TestListOfMovesTakenBack: who looks at the list of migrations when one is taken back sees all that there were,
// and nobody waits for it.
func TestListOfMovesTakenBack(t *testing.T) {
	r := aRun()
	r.w.agents["a"] = &hostAgent{host: topo.Host{Name: "a"}}
	r.w.where["web"] = "a"
	step := &scenario.Migrate{Guest: "web", To: "a"}
	first, second := r.newMove(step), r.newMove(step)
	seen := r.moves
	r.takeBack(first)
	if len(r.moves) != 1 || r.moves[0] != second || seen[0] != first || seen[1] != second {
		t.Errorf("%v, and %v where it was looked at", r.moves, seen)
	}
	if begun := first.began(); begun || !first.ended() {
		t.Errorf("it began: %v, is over: %v", begun, first.ended())
	}
}

// TestProgressIsKept: each sample of what the paths carried stays what it was.
func TestProgressIsKept(t *testing.T) {
	r, m := &run{opts: Options{Tell: func(string) {}}}, &move{guest: "web"}
	var want, got []int64
	for i := range int64(3) {
		data, err := json.Marshal(record.CopyProgress{Wire: map[string]int64{"first": i}})
		if err != nil {
			t.Fatal(err)
		}
		r.heard(t.Context(), m, record.Event{Kind: "progress", At: i, Data: data})
		want = append(want, i)
	}
	for _, w := range m.wire {
		got = append(got, w.bytes["first"])
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestTargets: a guest is asked at both of its sites, by the family that each of them has.
func TestTargets(t *testing.T) {
	list := func(prefixes ...string) (all []migration.Address) {
		for _, p := range prefixes {
			all = append(all, migration.Address{Prefix: netip.MustParsePrefix(p)})
		}
		return all
	}
	four, six, dual := list("10.1.1.10/24"), list("fd00:2:1::a/64"), list("10.3.1.10/24", "fd00:3:1::a/64")
	for _, c := range []struct {
		old, next []migration.Address
		want      string
	}{
		{four, dual, "10.1.1.10 10.3.1.10"},
		{dual, four, "10.3.1.10 10.1.1.10"},
		{six, dual, "fd00:2:1::a 10.3.1.10"},
		{dual, six, "10.3.1.10 fd00:2:1::a"},
		{six, four, "fd00:2:1::a 10.1.1.10"},
		{six, nil, "fd00:2:1::a"},
	} {
		var want []netip.Addr
		for _, a := range strings.Fields(c.want) {
			want = append(want, netip.MustParseAddr(a))
		}
		if got := targets(c.old, c.next); !slices.Equal(got, want) {
			t.Errorf("%v to %v: %v", c.old, c.next, got)
		}
	}
}

// TestAsked: a guest is asked at both addresses while it moves, and then at the one that it has.
func TestAsked(t *testing.T) {
	old, next := netip.MustParsePrefix("10.1.1.10/24"), netip.MustParsePrefix("10.2.1.10/24")
	for _, c := range []struct {
		since   migration.EventName
		network string // tunnel: its handover failed
		want    []netip.Addr
	}{
		{migration.MigrationStart, "mptcp", []netip.Addr{old.Addr(), next.Addr()}},
		{migration.HandoverDone, "mptcp", []netip.Addr{next.Addr()}}, {migration.HandoverDone, "tunnel", []netip.Addr{old.Addr()}},
	} {
		rep := record.Report{Network: c.network, Old: []migration.Address{{Prefix: old}}, Next: []migration.Address{{Prefix: next}}}
		if got := asked(c.since, &rep); !slices.Equal(got, c.want) {
			t.Errorf("%s, network %s: %v, want %v", c.since, c.network, got, c.want)
		}
	}
}

// TestNextAfterHandover: which next addresses a guest has when its handover is done is told by its destination, which
// may have chosen another since; where that does not answer, and before, by its source.
func TestNextAfterHandover(t *testing.T) {
	r := aRun()
	tells := func(host, next string) {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /v1/migrations/{id}", func(w http.ResponseWriter, _ *http.Request) {
			json.NewEncoder(w).Encode(record.Report{Next: []migration.Address{{Prefix: netip.MustParsePrefix(next)}}}) //nolint:errcheck // the client tells
		})
		r.w.agents[host] = anAgent(t, host, mux)
	}
	tells("a", "10.2.1.10/24")
	tells("b", "10.2.1.11/24")
	r.w.agents["gone"] = anAgent(t, "gone", http.NotFoundHandler())
	m := &move{guest: "web", from: "a", id: "m-00000001"}
	for _, c := range []struct {
		name       migration.EventName
		host, want string
	}{
		{migration.HandoverDone, "b", "10.2.1.11/24"}, {migration.HandoverDone, "gone", "10.2.1.10/24"},
		{migration.HandoverDone, "", "10.2.1.10/24"}, {migration.MigrationStart, "b", "10.2.1.10/24"},
	} {
		rep, err := r.reportOf(t.Context(), m, record.Event{Name: c.name, Host: c.host})
		if err != nil || len(rep.Next) != 1 || rep.Next[0].Prefix.String() != c.want {
			t.Errorf("%s of %q: %v, %v; want %s", c.name, c.host, rep.Next, err, c.want)
		}
	}
}

// TestAskedOfEarlierStays: what tunnels keep of a guest is not where it is, whatever family that is of.
func TestAskedOfEarlierStays(t *testing.T) {
	address := func(prefix, home string) migration.Address {
		return migration.Address{Prefix: netip.MustParsePrefix(prefix), Home: home}
	}
	four, six, next := address("10.1.1.10/24", "a"), address("fd00:2:1::a/64", "b"), address("10.3.1.10/24", "c")
	rep := record.Report{Old: []migration.Address{six, four}, Next: []migration.Address{next}}
	want := []netip.Addr{six.Prefix.Addr(), next.Prefix.Addr()}
	if got := asked(migration.MigrationStart, &rep); !slices.Equal(got, want) {
		t.Errorf("asked %v, want %v", got, want)
	}
}
