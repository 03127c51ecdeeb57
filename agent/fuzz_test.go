package agent

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"godwit/agent/capable"
	"godwit/agent/config"
	"godwit/agent/peer"
	"godwit/agent/probe"
	"godwit/migration"
)

// FuzzPreparation: what another host may send in prepare is refused, or its names,
// indices and lists can be used, and what is remembered of it can be read again.
func FuzzPreparation(f *testing.F) {
	whole, err := json.Marshal(goodPreparation())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(bytes.Replace(whole, []byte(`"home":"paris"`), []byte(`"home":"paris","handover":"m-1"`), 1))
	f.Add([]byte(`{"plan":{"guest":"../x","active":-1},"description":{"name":"../x"}}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var p Preparation
		if peer.Decode(&http.Request{Body: io.NopCloser(bytes.NewReader(data))}, &p) != nil || p.check() != nil {
			return
		}
		_ = p.Description.NICs[p.Plan.Active].Hardware()
		if !p.Plan.KeepsAddress() {
			_ = p.Plan.Next[len(p.Plan.Next)-1].Endpoint
		}
		if !config.IsGuestName(p.Plan.Guest) || len(p.Plan.Held) > migration.MostAddresses {
			t.Fatalf("taken: %+v", p.Plan)
		}
		bare(p.Plan.Held)
		m := &incoming{a: &Agent{config: &config.Config{Run: "/run/godwit"}}, plan: p.Plan, work: &destinationWork{preparation: p}}
		if held := m.expected(); held.Check() != nil {
			t.Fatalf("taken, and cannot be read again: %v", held.Check())
		}
	})
}

// FuzzJournaledStates: no state that can be read makes a machine panic.
func FuzzJournaledStates(f *testing.F) {
	f.Add([]byte(`{"course":"forward","at":8,"epoch":3}`), []byte(`{"landing":"waiting","released":true}`), uint8(1))
	f.Add([]byte(`{"course":"undoing","at":7,"outcome":"aborted","undo":["resume"]}`), []byte(`{"landing":"adopting","vanished":true}`), uint8(4))
	kinds := []migration.InputKind{
		migration.Start, migration.Done, migration.Fault, migration.Abort, migration.NoAnswer, migration.Declined, migration.Restarted,
		migration.TakeBack, migration.Released, migration.LoadedAll, migration.RunsAlready, migration.Vanish, migration.AskRefusal, migration.Disown,
	}
	f.Fuzz(func(t *testing.T, source, destination []byte, n uint8) {
		in := migration.Input{Kind: kinds[int(n)%len(kinds)], Problem: problemShutdown}
		var s migration.Source
		if json.Unmarshal(source, &s) == nil && s.Valid() == nil {
			in.Effect = s.Doing()
			s.Phase()
			if next, _, err := s.Step(in); err == nil && next.Valid() != nil {
				t.Fatalf("%+v, %+v: %v", s, in, next.Valid())
			}
		}
		var d migration.Destination
		if json.Unmarshal(destination, &d) == nil && d.Valid() == nil {
			if next, _, err := d.Step(migration.Input{Kind: in.Kind, Problem: problemShutdown}); err == nil && next.Valid() != nil {
				t.Fatalf("%+v, %+v: %v", d, in, next.Valid())
			}
		}
	})
}

// FuzzOffer: what another host may offer in check is refused, or this host has room for it.
func FuzzOffer(f *testing.F) {
	good := goodPreparation()
	whole, err := json.Marshal(Offer{Plan: good.Plan, Description: good.Description, Facts: good.Facts})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte(`{"facts":{"memory":9223372036854775807,"version":"99999999999999999999.x"}}`))
	f.Add([]byte(`{"endpoint":255,"facts":{"disks":[{"id":"a","size":-1}]},"description":{"disks":[{"id":"a"}]}}`))
	here := capable.Host{Name: "rome", Version: "10.0.0", Accel: "tcg", Free: 1 << 30, Reserve: 128 << 20}
	f.Fuzz(func(t *testing.T, data []byte) {
		var o Offer
		if json.Unmarshal(data, &o) != nil {
			return
		}
		if here.Lacks(o.guest()) == nil && (o.Facts.Memory < 0 || o.Facts.Memory > here.Free) {
			t.Fatalf("room for %d bytes", o.Facts.Memory)
		}
		if sizes, sum, err := capable.DiskSizes(o.Description, o.Facts); err == nil && (sum < 0 || len(sizes) != len(o.Description.Disks)) {
			t.Fatalf("disks of %v, together %d", sizes, sum)
		}
		if id := nextEndpoint(o.Endpoint); id == 0 || id == 255 {
			t.Fatalf("endpoint %d", id)
		}
	})
}

// FuzzAnswers: what a destination may answer to check and prepare is refused, or can be used:
// and QEMU is told of nothing but an address and a port.
func FuzzAnswers(f *testing.F) {
	key := strings.Repeat("A", 43) + "="
	f.Add([]byte(`{"next":[{"prefix":"10.2.1.10/24"}],"token":"AAAAAAAAAAAAAAAAAAAAAA=="}`), []byte(`{"tunnel_key":"`+key+`","tunnel":"10.0.0.1:700","memory":"tcp:10.0.0.1:4444,mptcp=on"}`))
	f.Add([]byte(`{"next":[{}],"token":""}`), []byte(`{"tunnel_key":"`+key+`","tunnel":"10.0.0.1:700","memory":"exec:sh -c id"}`))
	f.Add([]byte(`null`), []byte(`{"tunnel_key":"`+key+`","tunnel":"10.0.0.1:700","memory":"tcp:10.0.0.1:4444,fd=3"}`))
	f.Fuzz(func(t *testing.T, check, prepare []byte) {
		plan := migration.Plan{Network: "mptcp", Transfer: "qemu-mptcp", To: "rome"}
		var a Acceptance
		if json.Unmarshal(check, &a) == nil && a.check(plan, config.Neighbour{}) == nil {
			var token [probe.TokenLength]byte
			if copy(token[:], a.Token) != probe.TokenLength || len(bare(a.Next)) == 0 || len(a.Next) > migration.MostAddresses {
				t.Fatalf("taken: %+v", a)
			}
		}
		var p Prepared
		if json.Unmarshal(prepare, &p) == nil && p.check(plan) == nil {
			at, _, _ := strings.Cut(strings.TrimPrefix(p.Memory, "tcp:"), ",")
			if _, err := netip.ParseAddrPort(at); err != nil || strings.Count(p.Memory, ",") > 1 || len(p.Tunnels) > migration.MostAddresses {
				t.Fatalf("taken: %+v", p)
			}
		}
	})
}

// TestAnswersAreChecked: an answer that would have QEMU run a command is refused.
func TestAnswersAreChecked(t *testing.T) {
	good := Prepared{TunnelKey: strings.Repeat("A", 43) + "=", Tunnel: netip.MustParseAddrPort("10.0.0.1:700")}
	for memory, ok := range map[string]bool{
		"tcp:10.0.0.1:4444": true, "tcp:[fe80::1%gwm1]:4444,mptcp=on": true, "exec:touch /x": false, "fd:3": false, "unix:/run/x": false,
		"tcp:10.0.0.1:4444,reconnect=1": false, "": false, "10.0.0.1:4444": false,
	} {
		p := good
		p.Memory = memory
		if err := p.check(migration.Plan{Transfer: "qemu-mptcp"}); (err == nil) != ok {
			t.Errorf("memory to %q: %v", memory, err)
		}
	}
	if err := good.check(migration.Plan{Transfer: "lanes"}); err != nil {
		t.Error(err)
	}
}
