package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"godwit/agent/api"
	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/describe"
	"godwit/migration"
	"godwit/vm"
)

// anEnd is of guest mail, that was adopted at host a-1 and ended there.
func anEnd() care.Ended {
	return care.Ended{
		Description: config.Description{
			Name: "mail", Memory: 1 << 28, NICs: []config.NIC{{MAC: "52:54:00:00:00:0a", Tap: "tap-mail"}}, QMP: "/run/mail/qmp.sock",
			Disks: []vm.Disk{{ID: "root", Path: "/srv/mail.raw", Format: "raw"}}, Start: []string{"qemu", "-S", "-incoming", "defer"},
			Addresses: []migration.Address{{Prefix: netip.MustParsePrefix("10.1.1.20/24")}}, Network: "tunnel",
		},
		Addresses: []migration.Address{{Prefix: netip.MustParsePrefix("10.1.1.20/24"), Home: "a-1"}}, At: time.Unix(1e9, 0), Why: "powered off",
	}
}

// withEnded is an agent that has guest web, leads addresses of guest gone away, and knows how these ended.
func withEnded(t *testing.T, ended ...care.Ended) (socket string) {
	t.Helper()
	mux := http.NewServeMux()
	answer := func(pattern string, status func(name string) int, value any) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status(r.PathValue("name")))
			json.NewEncoder(w).Encode(value) //nolint:errcheck // the client tells
		})
	}
	ok := func(string) int { return http.StatusOK }
	answer("GET /v1/host", ok, api.HostInfo{Host: "a-1", Guests: []api.GuestInfo{{Name: "web"}}})
	answer("GET /v1/ended", ok, ended)
	answer("GET /v1/tunnels", ok, []api.TunnelUse{{Guest: "web"}, {Guest: "gone"}})
	unknown := migration.Problem{Code: migration.CodeUnknownGuest, Text: "guest: not under care"}
	answer("POST /v1/guests/{name}/forget", func(string) int { return http.StatusNotFound }, unknown)
	answer("DELETE /v1/ended/{name}", func(name string) int {
		if name == "mail" {
			return http.StatusOK
		}
		return http.StatusNotFound
	}, unknown)
	return serveAgent(t, mux)
}

// TestEndedGuests: ls says of guests that have ended that no agent starts them, describe what one was, and forget forgets it.
func TestEndedGuests(t *testing.T) {
	socket := withEnded(t, anEnd())
	at := time.Unix(1e9, 0).Local().Format(time.DateTime)
	for line, want := range map[string]string{
		"guest ls":                    "mail             ended " + at + " (powered off); no agent starts it again, see `godwit guest describe --ended mail`\n",
		"guest describe --ended mail": "# look: guest mail ended on host a-1 at " + at + " (powered off), and no agent starts it again; it had 10.1.1.20/24 (at home on a-1)\n# look: make sure that it runs nowhere else",
		"guest forget mail":           "forgotten, but for its disks, as it had ended: mail\n",
	} {
		var out bytes.Buffer
		if status := run(append(strings.Fields(line), "--socket", socket), &out, io.Discard); status != exitDone || !strings.Contains(out.String(), want) {
			t.Errorf("godwit %s: status %d, %s; want %s", line, status, out.String(), want)
		}
	}
	for line, want := range map[string]string{
		"guest show mail": "not under care", "guest forget nope": "not under care", "guest describe --ended nope": "none of that name has ended on host a-1",
	} {
		var out, errOut bytes.Buffer
		if status := run(append(strings.Fields(line), "--socket", socket), &out, &errOut); status != exitUsage || out.Len() > 0 || !strings.Contains(errOut.String(), want) {
			t.Errorf("godwit %s: status %d, %s%s", line, status, out.String(), errOut.String())
		}
	}
	var out bytes.Buffer
	var one describe.Found
	if run([]string{"guest", "describe", "--ended", "mail", "--json", "--socket", socket}, &out, io.Discard); json.Unmarshal(out.Bytes(), &one) != nil || !reflect.DeepEqual(one.Description, anEnd().Description) {
		t.Errorf("as JSON: %s", out.String())
	}
}

// TestEndedUnheard: of a guest that ended where it had come to, and that its source may have again, it is said at once.
func TestEndedUnheard(t *testing.T) {
	e := anEnd()
	e.Unheard = &care.Unheard{Migration: "m-00000001", From: "b-1"}
	socket := withEnded(t, e)
	for line, want := range map[string]string{
		"guest ls":                    " (powered off), and b-1, from which it came, has not said yet whether it took it back; no agent starts it again, see",
		"guest describe --ended mail": "\n# look: b-1, from which it came, has not said yet whether it took it back: see ",
	} {
		var out bytes.Buffer
		if status := run(append(strings.Fields(line), "--socket", socket), &out, io.Discard); status != exitDone || !strings.Contains(out.String(), want) {
			t.Errorf("godwit %s: status %d, %s; want %s", line, status, out.String(), want)
		}
	}
}

// TestLsOfAnOlderAgent: guests are listed where the agent does not know which have ended.
func TestLsOfAnOlderAgent(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/host", func(w http.ResponseWriter, _ *http.Request) {
		json.NewEncoder(w).Encode(api.HostInfo{Host: "a-1", Guests: []api.GuestInfo{{Name: "web"}}}) //nolint:errcheck // the client tells
	})
	var out, errOut bytes.Buffer
	if status := run([]string{"guest", "ls", "--socket", serveAgent(t, mux)}, &out, &errOut); status != exitDone || !strings.HasPrefix(out.String(), "web") || !strings.Contains(errOut.String(), "one of another release") {
		t.Errorf("status %d, %s%s", status, out.String(), errOut.String())
	}
}

// TestShownEndIsADescription: one that ended where it was adopted is adopted by what is shown; of one that came there a
// person fills in what an agent had named.
func TestShownEndIsADescription(t *testing.T) {
	came := anEnd()
	came.Description.QMP, came.Description.NICs, came.Description.Start = "", []config.NIC{{MAC: "52:54:00:00:00:0a"}}, []string{"qemu", "-chardev", "socket,path={channel}"}
	for name, c := range map[string]struct {
		e    care.Ended
		want string
	}{
		"adopted here": {anEnd(), ""},
		"came here":    {came, `qmp "QMP-SOCKET": not the absolute path of a socket`},
	} {
		file := filepath.Join(t.TempDir(), "mail.yaml")
		if err := os.WriteFile(file, []byte(whatWas(c.e, "a-1").YAML()), 0o600); err != nil {
			t.Fatal(err)
		}
		d, err := config.LoadDescription(file)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if c.want == "" && !reflect.DeepEqual(d, c.e.Description) {
			t.Errorf("%s: %+v", name, d)
		}
		if err := d.Check(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if c.want != "" && (d.Channel != "CHANNEL-SOCKET" || d.NICs[0].Tap != "TAP0" || c.e.Description.NICs[0].Tap != "") {
			t.Errorf("%s: %+v", name, d)
		}
	}
}
