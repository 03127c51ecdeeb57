package main

import (
	"bytes"
	"os"
	"os/exec"
	"testing"

	"godwit/internal/need"
)

// asGuest, where it is set, lets this binary be godwit-guest with all that main does.
const asGuest = "GODWIT_TEST_AS_GUEST"

func TestMain(m *testing.M) {
	if os.Getenv(asGuest) != "" {
		main()
	}
	need.Namespace(m)
}

// TestHelperOffersNoCommands: the host of an ordinary guest gets what a move needs, and
// neither commands nor workloads.
func TestHelperOffersNoCommands(t *testing.T) {
	n := newNode(&family{})
	offered := n.handover()
	for _, method := range []string{"exec", "run", "verify", "poweroff", "reboot"} {
		if _, ok := offered[method]; ok {
			t.Errorf("an ordinary guest offers %s", method)
		}
		if _, ok := n.all()[method]; !ok {
			t.Errorf("a guest of the lab lacks %s", method)
		}
	}
	for _, method := range []string{"configure", "await_join", "make_main", "retire", "users", "drop_address", "ticks"} {
		if _, ok := offered[method]; !ok {
			t.Errorf("an ordinary guest lacks %s", method)
		}
	}
	n.offer(offered)
	if _, ok := offered["info"]; !ok || n.server == nil {
		t.Error("nobody says what the guest offers")
	}
}

// TestHelperIsAskedWrongly runs the program as a user would.
func TestHelperIsAskedWrongly(t *testing.T) {
	for _, c := range []struct {
		args   []string
		status int
		says   string
	}{
		{nil, 2, "godwit-guest serve"},
		{[]string{"dance"}, 2, "godwit-guest serve"},
		{[]string{"--help"}, 0, "godwit-guest serve"},
		{[]string{"serve", "--help"}, 0, "-leave-settings"},
		{[]string{"serve", "--prot", "x"}, 2, "not defined: -prot"},
		{[]string{"serve", "x"}, 2, `unknown word "x"`},
	} {
		command := exec.Command("/proc/self/exe", c.args...)
		command.Env = append(os.Environ(), asGuest+"=1")
		out, _ := command.CombinedOutput()
		if status := command.ProcessState.ExitCode(); status != c.status || !bytes.Contains(out, []byte(c.says)) {
			t.Errorf("%v: status %d, says %q; want %d and %q", c.args, status, out, c.status, c.says)
		}
	}
}

// TestStrictFilters: one that is strict for a single NIC drops packets as one for all does.
func TestStrictFilters(t *testing.T) {
	need.Root(t)
	setting := func(of string) string { return "/proc/sys/net/ipv4/conf/" + of + "/rp_filter" }
	for _, c := range []struct{ all, nic, want string }{{"0", "0", "0"}, {"0", "1", "2"}, {"0", "2", "0"}, {"1", "0", "2"}, {"2", "1", "2"}} {
		must(t, os.WriteFile(setting("default"), []byte("0"), 0))
		must(t, os.WriteFile(setting("all"), []byte(c.all), 0))
		must(t, os.WriteFile(setting("lo"), []byte(c.nic), 0))
		must(t, loosen())
		got, err := os.ReadFile(setting("all"))
		must(t, err)
		want(t, c.all+" for all, "+c.nic+" for a NIC", string(bytes.TrimSpace(got)), c.want)
	}
	must(t, os.WriteFile(setting("all"), []byte("0"), 0))
	must(t, os.WriteFile(setting("lo"), []byte("0"), 0))
}
