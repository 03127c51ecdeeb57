package agent

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/detour"
	"godwit/agent/guests"
	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/migration"
	"godwit/netstate"
	"godwit/netstate/hold"
	"godwit/netstate/tunnel"
)

// fill puts packets into a tap's queue, in which there is nothing else, each with its number as its last byte.
func fill(t *testing.T, device string, tap *os.File, numbers ...byte) {
	t.Helper()
	held(t, tap)
	frames := make([][]byte, len(numbers))
	for i, number := range numbers {
		f := make([]byte, hold.HeaderLen+14+20+8+4)
		copy(f[hold.HeaderLen:], []byte{0x52, 0x54, 0, 0, 1, 0xa, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17})
		f[len(f)-1] = number
		frames[i] = f
	}
	if sent, err := hold.Resend(frames, device); sent != len(frames) || err != nil {
		t.Fatalf("%d of %d packets are in %s: %v", sent, len(frames), device, err)
	}
}

// held takes what fill put into a tap out of it.
func held(t *testing.T, tap *os.File) []byte {
	t.Helper()
	frames, err := hold.ReadLeft(tap)
	if err != nil {
		t.Fatal(err)
	}
	var numbers []byte
	for _, f := range frames {
		if hold.Unicast([][]byte{f}) && f[hold.HeaderLen+12] == 8 && f[len(f)-1] != 0 { // the kernel's own are of IPv6
			numbers = append(numbers, f[len(f)-1])
		}
	}
	return numbers
}

// openTaps are taps of this namespace, until the test ends, each as a tunnel with Ethernet inside would be.
func openTaps(ctx context.Context, t *testing.T, devices ...string) map[string]*os.File {
	t.Helper()
	taps := map[string]*os.File{}
	for _, device := range devices {
		tap, err := netstate.OpenTap(device, 100, "br0", 1500)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { tap.Close() })
		taps[device] = tap
		out, err := exec.CommandContext(ctx, "ip", strings.Fields("neigh replace 10.8.0.2 nud permanent lladdr 02:00:00:00:00:02 dev "+device)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return taps
}

// TestLeftovers: what is left in the tap of a guest that was stopped goes into its tunnel after it, and is told. Where
// there is none it stays there, for a guest that runs on here; so does what is in the spare NIC's.
func TestLeftovers(t *testing.T) {
	ways := map[string]func(*outgoing, context.Context) error{
		"alone":       func(m *outgoing, _ context.Context) error { m.handLeftovers(); return nil },
		"let go":      func(m *outgoing, ctx context.Context) error { return m.letGo(ctx) },
		"not drained": func(m *outgoing, ctx context.Context) error { m.drain(ctx, m.guest.ActiveTap()); return nil },
	}
	for name, c := range map[string]struct {
		way, made, earlier string // made: by this agent; earlier: by the one before it
		left, went, stay   []byte
	}{
		"into its tunnel":        {"alone", "into", "", []byte{1, 2}, []byte{1, 2}, nil},
		"as it is let go":        {"let go", "into", "", []byte{1, 2}, []byte{1, 2}, nil},
		"as it does not drain":   {"not drained", "into", "", []byte{1, 2}, []byte{1, 2}, nil},
		"it drains":              {"not drained", "into", "", nil, nil, nil},
		"of an earlier agent":    {"alone", "", "into", []byte{1, 2}, []byte{1, 2}, nil},
		"no tunnel":              {"alone", "", "", []byte{1, 2}, nil, []byte{1, 2}},
		"nothing left":           {"alone", "into", "", nil, nil, nil},
		"a tunnel that has gone": {"alone", "gone", "", []byte{1, 2}, nil, nil},
		"this agent's of two":    {"alone", "into", "gone", []byte{1, 2, 3}, []byte{1, 2, 3}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			link := linked(t, "paris", "rome", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				peer.Answer(w, talk.ReleaseAnswer{State: "running"}, nil)
			}))
			hostWithTunnels(t, func(ctx context.Context, a *Agent) error {
				taps := openTaps(ctx, t, "own", "spare", "into")
				g := guests.New(care.Held{Active: 1}, nil)
				g.AddTap("spare", taps["spare"])
				g.AddTap("own", taps["own"])
				plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Epoch: 2}
				m := &outgoing{a: a, guest: g, link: link, plan: plan, work: &sourceWork{tunnel: c.made}, rec: record.New("paris", plan, time.Now()), state: sourceDoing(t, migration.Release)}
				if c.earlier != "" {
					place(a, &detour.Detour{ID: plan.ID, Guest: "web", Peer: "rome", Tunnel: tunnel.Config{Name: c.earlier}})
				}
				fill(t, "spare", taps["spare"], 9)
				fill(t, "own", taps["own"], c.left...)
				if err := ways[c.way](m, ctx); err != nil {
					return err
				}
				if went, stay, spare := held(t, taps["into"]), held(t, taps["own"]), held(t, taps["spare"]); !slices.Equal(went, c.went) || !slices.Equal(stay, c.stay) || !slices.Equal(spare, []byte{9}) {
					t.Errorf("%d went, %d stay, %d in the spare's; want %d, %d", went, stay, spare, c.went, c.stay)
				}
				if told := len(m.rec.Snapshot().Notes) > 0; told != (len(c.went) > 0) {
					t.Errorf("notes: %q", m.rec.Snapshot().Notes)
				}
				return nil
			})
		})
	}
	m := &outgoing{a: bareAgent(t, between(t).config), guest: guests.New(care.Held{}, nil), work: &sourceWork{tunnel: "into"}}
	m.handLeftovers() // of a guest whose taps were not found again
}
