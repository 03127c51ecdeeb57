package migration

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestCheckRequestFillsIn(t *testing.T) {
	req := Request{Guest: "web", To: "rome"}
	if err := req.Check(); err != nil {
		t.Fatal(err)
	}
	want := Request{Guest: "web", To: "rome", Mode: "auto", Transfer: "auto", Network: "auto", TunnelKind: "auto", Downtime: DefaultDowntime}
	if req != want {
		t.Errorf("%+v, want %+v", req, want)
	}
	for _, tunnel := range Tunnels {
		for _, network := range Networks {
			for _, transfer := range Transfers {
				for _, mode := range Modes {
					req := Request{Guest: "web", Mode: mode, Transfer: transfer, Network: network, TunnelKind: tunnel, Downtime: time.Minute}
					if (mode == "hybrid" || mode == "postcopy") && strings.HasPrefix(transfer, "qemu-") {
						continue
					}
					if err := req.Check(); err != nil || req.Downtime != time.Minute {
						t.Errorf("%+v: %v", req, err)
					}
				}
			}
		}
	}
}

func TestCheckRequestRefuses(t *testing.T) {
	for _, c := range []struct {
		req   Request
		words []string
	}{
		{Request{Mode: "fast"}, []string{`mode "fast" is unknown`, "precopy", "stopcopy"}},
		{Request{Mode: "hybrid", Transfer: "qemu-tcp"}, []string{"mode hybrid goes with", "lanes"}},
		{Request{Mode: "postcopy", Transfer: "qemu-multifd"}, []string{"mode postcopy goes with", "mptcp"}},
		{Request{Transfer: "pigeon"}, []string{`transfer "pigeon" is unknown`, "qemu-multifd"}},
		{Request{Network: "bridge"}, []string{`network "bridge" is unknown`, "mptcp, drain, tunnel"}},
		{Request{TunnelKind: "geneve"}, []string{`tunnel "geneve" is unknown`, "wireguard, vxlan, gre, ipip"}},
		{Request{Downtime: -1}, []string{"downtime budget of -1ns"}},
		{Request{Downtime: time.Millisecond - 1}, []string{"downtime budget of 999.999µs; between 1ms and 1m"}},
		{Request{Downtime: time.Minute + 1}, []string{"downtime budget of 1m0.000000001s"}},
		{Request{Bandwidth: -8}, []string{"bandwidth of -8 bit/s"}},
		{Request{Bandwidth: 1}, []string{"bandwidth of 1 bit/s", "at least 8kbit"}},
		{Request{Mode: "precopy", Throttle: -1}, []string{"throttle of -1 %; between 1 and 99"}},
		{Request{Mode: "precopy", Throttle: 100}, []string{"throttle of 100 %; between 1 and 99"}},
		{Request{Throttle: 20}, []string{"throttle goes with mode precopy only"}},
		{Request{Buffer: leastBuffer - 1}, []string{"buffer of 1048575 bytes; at least 1048576"}},
		{Request{InsecureTransfer: true}, []string{"insecure_transfer", "qemu-*"}},
	} {
		c.req.Guest = "web"
		var problem *Problem
		if err := c.req.Check(); !errors.As(err, &problem) || problem.Code != CodeUsage {
			t.Fatalf("%v: want a usage problem", err)
		}
		for _, w := range append(c.words, "migrate guest web: ") {
			if !strings.Contains(problem.Text, w) || strings.ContainsAny(problem.Text, "\n") || strings.Contains(problem.Text, "%!") {
				t.Errorf("%q: want one line of words, and %q in it", problem.Text, w)
			}
		}
	}
}

func TestBufferOfARequest(t *testing.T) {
	for name, c := range map[string]struct {
		req Request
		ok  bool
	}{
		"none":       {Request{}, true},
		"some":       {Request{Buffer: 8 << 20}, true},
		"too little": {Request{Buffer: 4096}, false},
		"negative":   {Request{Buffer: -1}, false},
		"of QEMU":    {Request{Buffer: 8 << 20, Transfer: "qemu-tcp"}, false},
	} {
		c.req.Guest, c.req.To = "web", "rome"
		if err := c.req.Check(); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRequestAtItsBounds: what is just enough, or just not too much, is taken; where no guest is named, what is refused
// is of all.
func TestRequestAtItsBounds(t *testing.T) {
	for _, req := range []Request{
		{Downtime: time.Millisecond}, {Downtime: time.Minute}, {Bandwidth: LeastBandwidth}, {Buffer: leastBuffer},
		{Mode: "precopy", Throttle: 1}, {Mode: "precopy", Throttle: 99}, {Transfer: "qemu-tcp", InsecureTransfer: true},
	} {
		if err := req.Check(); err != nil {
			t.Errorf("%+v: %v", req, err)
		}
	}
	if err := (&Request{Mode: "fast"}).Check(); err == nil || !strings.Contains(err.Error(), "migrate guests: mode") {
		t.Error(err)
	}
}
