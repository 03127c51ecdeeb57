package report

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// sample is a report as a run of the demo gives it: two moves over three sites,
// four flows. The same seed, the same report.
func sample() *Report {
	rnd := rand.New(rand.NewPCG(1, 2))
	r := &Report{
		Scenario: "demo", OK: true, Unmet: []string{}, Leftovers: []string{},
		Started: "2026-05-04T10:20:30Z", DurationS: 42,
		Machine: map[string]string{"accel": "TCG", "links": "user space", "qemu": "10.0.2"},
		Migrations: []Migration{
			sampleMove("montreal", "sanjose", 4, []float64{0, 0.12, 0.61, 0.62, 6.4, 6.52, 7.3, 7.6}, 41, 60),
			sampleMove("sanjose", "dublin", 21, []float64{0, 0.15, 0.8, 0.81, 8.9, 9.06, 10.4, 10.9}, 57, 98),
		},
		Series: &Series{},
	}
	kinds := []string{"ticks", "download", "upload", "requests"}
	for _, kind := range kinds {
		r.Traffic = append(r.Traffic, sampleTraffic(kind))
		for i := range 440 {
			t := -2 + float64(i)*0.1
			sampleFlow(r, rnd, kind, t)
		}
		sampleSubflows(r, kind)
	}
	for i := range 440 {
		t := -2 + float64(i)*0.1
		gap := 10 + rnd.Float64()*2
		if hit(t, 10.5) {
			gap = 60
		}
		if hit(t, 30.0) {
			gap = 98
		}
		r.Series.Probe("web").Add(t, gap, baseRTT(t)+rnd.Float64())
		r.Series.Path("public-public").Add(t, 9e6*during(t, 4.6, 10.5)+7e6*during(t, 21.8, 30))
		r.Series.Path("private-public").Add(t, 3e6*during(t, 4.6, 10.5)+2e6*during(t, 21.8, 30))
	}
	r.Series.Steps = []StepDone{
		{AtS: 4, Text: "migrate web to sanjose"},
		{AtS: 21, Text: "migrate web to dublin"},
		{AtS: 25, EndS: new(28.0), Text: "cut sanjose/private for 3s"},
	}
	for _, m := range r.Migrations {
		at := m.RequestedS
		for _, e := range []struct {
			name string
			s    float64
		}{
			{"MIGRATION_START", m.Phases[0].EndS}, {"SOURCE_SUSPEND", m.Phases[4].StartS + 0.05},
			{"TARGET_RESUME", m.Phases[4].EndS}, {"HANDOVER_DONE", m.Phases[5].EndS}, {"MIGRATION_DONE", m.Phases[6].EndS},
		} {
			r.Series.Events = append(r.Series.Events, Event{AtS: at + e.s, Name: e.name, Guest: "web"})
		}
	}
	return r
}

func hit(t, at float64) bool { return math.Abs(t-at) < 0.05 }

func during(t, from, to float64) float64 { return min(max(t-from, 0), to-from) }

// baseRTT is 20 ms, then 0.6 ms (the client's own site), then 45 ms.
func baseRTT(t float64) float64 {
	switch {
	case t < 10.5:
		return 20
	case t < 11.3:
		return 40
	case t < 30:
		return 0.6
	case t < 31.4:
		return 46
	}
	return 45
}

func sampleFlow(r *Report, rnd *rand.Rand, kind string, t float64) {
	mbps := map[string]float64{"ticks": 0.05, "download": 170, "upload": 120, "requests": 2}[kind]
	if t > 11.3 && t < 30 && mbps > 10 {
		mbps *= 2.2
	}
	if t > 4.6 && t < 10.5 && mbps > 10 {
		mbps *= 0.6
	}
	gap := map[string]float64{"ticks": 11, "download": 4, "upload": 6, "requests": 1}[kind] + rnd.Float64()*3
	if kind == "requests" || kind == "upload" {
		gap += baseRTT(t)
	}
	switch {
	case hit(t, 10.5):
		gap, mbps = 72+rnd.Float64()*20, mbps*0.3
	case hit(t, 30.0):
		gap, mbps = 120+rnd.Float64()*30, mbps*0.2
	}
	rtt := baseRTT(t)*(1+rnd.Float64()*0.1) + 0.2
	if mbps > 10 {
		rtt += 8 * rnd.Float64()
	}
	r.Series.Flow(kind, kind).Add(t, mbps*(0.95+0.1*rnd.Float64()), rtt, gap)
}

func sampleSubflows(r *Report, kind string) {
	for i, s := range []struct {
		remote string
		from   float64
		to     *float64
	}{{"10.1.1.10", -2, new(11.35)}, {"10.2.1.10", 10.8, new(31.5)}, {"10.3.1.10", 30.7, nil}} {
		r.Series.Subflows = append(r.Series.Subflows, Subflow{Flow: kind, Local: "198.18.1.10", Remote: s.remote,
			FromS: s.from + float64(len(kind)+i)*0.02, ToS: s.to})
	}
}

func sampleTraffic(kind string) Traffic {
	gaps := map[string][2]float64{"ticks": {138, 12}, "download": {131, 7}, "upload": {149, 28}, "requests": {142, 23}}[kind]
	mbps := map[string][3]float64{"ticks": {0.05, 0.05, 0.05}, "download": {170, 102, 374}, "upload": {120, 72, 264}, "requests": {2, 2, 2}}[kind]
	t := Traffic{Name: kind, Client: "phone", Guest: "web", Kind: kind, MPTCP: new(true), Survived: true,
		ServiceGapMS: &gaps[0], GapBeforeMS: &gaps[1], RecordsLost: new(int64(0)), RecordsRepeated: new(int64(0)), Corrupt: new(int64(0)),
		Bytes: new(int64(mbps[0] * 42e6 / 8)), Mbps: Windows{&mbps[0], &mbps[1], &mbps[2]},
		RTTMS: Windows{new(20.4), new(41.2), new(0.61)}, Retransmits: new(int64(14)), Connections: 1}
	if kind == "requests" {
		t.Retransmits = nil
		t.WhyNull = map[string]string{"retransmits": "the kernel has no MPTCP_TCPINFO"}
	}
	return t
}

func sampleMove(from, to string, at float64, ends []float64, vm, network float64) Migration {
	m := Migration{Guest: "web", From: from, To: to, Outcome: Completed, Mode: "precopy", Transfer: "qemu-mptcp", Network: "mptcp",
		TotalS: new(ends[7]), MigrationS: new(ends[5]), MemoryS: new(ends[5]), VMDowntimeMS: &vm, QEMUDowntimeMS: new(vm - 3),
		NetworkDowntimeMS: &network, Rounds: new(int64(3)), MemoryBytes: new(int64(268435456)), WireBytes: new(int64(81e6)),
		WireBytesByPath: map[string]int64{"public-public": 61e6, "private-public": 20e6}, DiskWireBytes: new(int64(0)),
		HeldPackets: new(int64(12)), DroppedPackets: new(int64(0)), LinkDrops: new(int64(0)), TunnelS: new(2.4),
		Predicted:   &Predicted{MigrationS: new(6.0), DowntimeMS: new(45.0), WireBytes: new(int64(80e6))},
		Connections: &Connections{Total: 4, Moved: 4}, RequestedS: at, SwitchedS: new(at + ends[5]), NextSilentMS: new(20.5)}
	for i, name := range []string{"check", "prepare", "seed", "copy", "switch", "handover", "settle"} {
		m.Phases = append(m.Phases, Phase{Name: name, StartS: ends[i], EndS: ends[i+1]})
	}
	return m
}

// sampleBad is a run in which much went wrong: an aborted move, a plain TCP flow
// that stayed on the tunnel, numbers that are not known, names that want escaping.
func sampleBad() *Report {
	r := sample()
	r.Scenario = "cut-<at>&-copy"
	m := &r.Migrations[1]
	m.Outcome, m.Reason = Aborted, "copy web: path sanjose–dublin is gone: no answer for 5s"
	m.MigrationS, m.VMDowntimeMS, m.NetworkDowntimeMS, m.SwitchedS, m.DroppedPackets, m.WireBytes = nil, nil, nil, nil, nil, nil
	m.WhyNull = map[string]string{"migration_s": "aborted", "vm_downtime_ms": "the guest was never paused", "dropped_packets": "aborted"}
	m.Phases = m.Phases[:4]
	m.Phases[3].EndS = 9.1
	r.Migrations[0].Connections = &Connections{Total: 4, Moved: 2, Tunnelled: 1, Lost: 1}
	r.Traffic[1].Survived = false
	r.Traffic[1].RecordsLost = new(int64(3))
	r.Traffic[2].MPTCP = new(false)
	r.Leftovers = []string{"namespace gw1a2b-r-montreal", "process 4711 (godwit _link)"}
	r.OK = false
	r.Unmet = []string{
		"migrations: migration 2 (web sanjose → dublin) aborted, expected completed: " + m.Reason,
		"connections: traffic download did not survive",
		"connections: records_lost of traffic download is 3, expected 0",
		fmt.Sprintf("leftovers: 2, expected none: %s", r.Leftovers[0]),
	}
	return r
}
