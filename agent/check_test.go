package agent

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/migration"
)

func TestOlder(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"7.2.0", "10.0.0", true},
		{"10.0.0", "7.2.0", false},
		{"10.0.0", "10.0.0", false},
		{"10.0.0", "10.0.5", false}, // patch releases migrate to each other
		{"10.0", "10.1.0", true},
		{"10.10.0", "10.9.0", false},
		{"9.2.4 (Debian 1:9.2.4)", "10.0.0", true},
		{"10", "10.0.1", false},
		{"", "10.0.0", true},
	} {
		if got := older(c.a, c.b); got != c.want {
			t.Errorf("%q older than %q: %v", c.a, c.b, got)
		}
	}
}

func TestMissingFlags(t *testing.T) {
	for _, c := range []struct {
		want, have string
		missing    []string
	}{
		{"", "", nil},
		{"", "fpu", nil},
		{"fpu sse", "sse  vmx\tfpu", nil},
		{"fpu avx2 avx", "fpu avx512", []string{"avx2", "avx"}},
		{"fpu", "", []string{"fpu"}},
	} {
		if got := without(strings.Fields(c.want), strings.Fields(c.have)); !slices.Equal(got, c.missing) {
			t.Errorf("%q of %q: %v", c.want, c.have, got)
		}
	}
}

// refusal checks that err is a usage problem of one line that has all of words.
func refusal(t *testing.T, err error, words ...string) {
	t.Helper()
	var problem *migration.Problem
	if !errors.As(err, &problem) || problem.Code != migration.CodeUsage {
		t.Fatalf("%v: want a usage problem", err)
	}
	for _, w := range words {
		if !strings.Contains(problem.Text, w) {
			t.Errorf("%q: want %q in it", problem.Text, w)
		}
	}
	if strings.ContainsAny(problem.Text, "\n") || strings.Contains(problem.Text, "%!") {
		t.Errorf("%q: want one line of words", problem.Text)
	}
}

func TestCheckRequestFillsIn(t *testing.T) {
	req := migration.Request{Guest: "web", To: "rome"}
	if err := CheckRequest(&req); err != nil {
		t.Fatal(err)
	}
	want := migration.Request{Guest: "web", To: "rome", Mode: "auto", Transfer: "auto", Network: "auto", TunnelKind: "auto", Downtime: migration.DefaultDowntime}
	if req != want {
		t.Errorf("%+v, want %+v", req, want)
	}
	for _, tunnel := range migration.Tunnels {
		for _, network := range migration.Networks {
			for _, transfer := range supportedTransfers {
				for _, mode := range supportedModes {
					req := migration.Request{Guest: "web", Mode: mode, Transfer: transfer, Network: network, TunnelKind: tunnel, Downtime: time.Minute}
					if (mode == "hybrid" || mode == "postcopy") && strings.HasPrefix(transfer, "qemu-") {
						continue
					}
					if err := CheckRequest(&req); err != nil || req.Downtime != time.Minute {
						t.Errorf("%+v: %v", req, err)
					}
				}
			}
		}
	}
}

func TestCheckRequestRefuses(t *testing.T) {
	for _, c := range []struct {
		req   migration.Request
		words []string
	}{
		{migration.Request{Mode: "fast"}, []string{`mode "fast" is unknown`, "precopy", "stopcopy"}},
		{migration.Request{Mode: "hybrid", Transfer: "qemu-tcp"}, []string{"mode hybrid goes with", "lanes"}},
		{migration.Request{Mode: "postcopy", Transfer: "qemu-multifd"}, []string{"mode postcopy goes with", "mptcp"}},
		{migration.Request{Transfer: "pigeon"}, []string{`transfer "pigeon" is unknown`, "qemu-multifd"}},
		{migration.Request{Network: "bridge"}, []string{`network "bridge" is unknown`, "mptcp, drain, tunnel"}},
		{migration.Request{TunnelKind: "geneve"}, []string{`tunnel "geneve" is unknown`, "wireguard, vxlan, gre, ipip"}},
		{migration.Request{Downtime: -1}, []string{"downtime budget of -1ns"}},
		{migration.Request{Downtime: time.Millisecond - 1}, []string{"downtime budget of 999.999µs; between 1ms and 1m"}},
		{migration.Request{Downtime: time.Minute + 1}, []string{"downtime budget of 1m0.000000001s"}},
		{migration.Request{Bandwidth: -8}, []string{"bandwidth of -8 bit/s"}},
		{migration.Request{Bandwidth: 1}, []string{"bandwidth of 1 bit/s", "at least 8kbit"}},
		{migration.Request{InsecureTransfer: true}, []string{"insecure_transfer", "qemu-*"}},
	} {
		c.req.Guest = "web"
		refusal(t, CheckRequest(&c.req), append(c.words, "migrate guest web: ")...)
	}
}

func TestBufferOfARequest(t *testing.T) {
	for name, c := range map[string]struct {
		req migration.Request
		ok  bool
	}{
		"none":       {migration.Request{}, true},
		"some":       {migration.Request{Buffer: 8 << 20}, true},
		"too little": {migration.Request{Buffer: 4096}, false},
		"negative":   {migration.Request{Buffer: -1}, false},
		"of QEMU":    {migration.Request{Buffer: 8 << 20, Transfer: "qemu-tcp"}, false},
	} {
		c.req.Guest, c.req.To = "web", "rome"
		if err := CheckRequest(&c.req); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
