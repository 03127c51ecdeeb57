package agent

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"time"

	"godwit/agent/config"
	"godwit/agent/limits"
	"godwit/agent/peer"
	"godwit/agent/probe"
	"godwit/agent/ways"
	"godwit/policy"
	"godwit/transfer/paths"
)

// What a path loses is found out by a train of small packets, for the prediction alone.
const (
	trainPackets = 150
	trainEvery   = time.Millisecond
	// trainLonger is how many times as many there are where each loss costs: one in a hundred is a tenth of what the
	// path carries then.
	trainLonger = 3
	// trainShare is what of its rate a path is to carry of that, and trainFewest are the packets that tell something: a
	// path too slow for them within trainLimit is not tried.
	trainShare, trainFewest = 0.2, 50
	trainLimit              = 300 * time.Millisecond
	// trainBelieved is of how many lost packets on it is believed that the path loses some by itself.
	trainBelieved = 3
)

// train is how many packets a path of so many bit/s (0: unknown) is tried with, and how far apart; heeds: by
// connections that take losses for congestion.
func train(rate int64, heeds bool) (packets int, every time.Duration) {
	every, packets = trainEvery, trainPackets
	limit := trainLimit
	if heeds {
		packets, limit = trainLonger*packets, trainLonger*limit
	}
	if rate > 0 {
		every = max(every, time.Duration(probe.Least*8/(trainShare*float64(rate))*float64(time.Second)))
	}
	if packets = min(packets, int(limit/every)); packets < trainFewest {
		packets = 0
	}
	return packets, every
}

// beginTrains begins to find out what memory's paths lose, beside the rest of the check; nothing hangs on it.
func (m *outgoing) beginTrains(ctx context.Context, n config.Neighbour) {
	m.work.trains = map[[2]netip.Addr]<-chan probe.Train{}
	token := m.work.accepted.Token
	for _, p := range m.paths(n) {
		packets, every := train(p.Rate, m.heedsLoss(p) != "")
		if packets == 0 {
			continue
		}
		answer := make(chan probe.Train, 1)
		m.work.trains[ways.Ends(p)] = answer
		go func() {
			ctx, cancel := limits.RoundTrip.On(ctx)
			defer cancel()
			out, err := probe.Loss(ctx, p.Local, netip.AddrPortFrom(p.Remote, m.a.config.Port), token, packets, every)
			if err != nil {
				m.a.log.Info("what a path loses is not known", "migration", m.plan.ID, "path", p.Name, "error", err)
				out = probe.Train{}
			}
			answer <- out
		}()
	}
}

// heedsLoss is the congestion control by which memory's connections over a path take losses for congestion; "": they do not.
func (m *outgoing) heedsLoss(p peer.Path) string {
	return paths.HeedsLoss(m.plan.OwnPath() && p.Rate > 0)
}

// loses is what a train tells of a path: each way the same, as nobody knows by which a packet was lost.
func loses(t probe.Train) policy.Loses {
	lost := t.Sent - t.Answered
	if lost < trainBelieved || t.Answered == 0 {
		return policy.Loses{RTT: t.RTT}
	}
	return policy.Loses{Share: 1 - math.Sqrt(float64(t.Answered)/float64(t.Sent)), RTT: t.RTT}
}

// lossNote says what a path will carry of its rate, bit/s (0: unknown).
func lossNote(p peer.Path, lost policy.Loses, control string, most float64) string {
	of := ""
	if p.Rate > 0 {
		of = fmt.Sprintf(" of %.3g", float64(p.Rate)/1e6)
	}
	return fmt.Sprintf("path %s lost %.1f %% of small packets: a connection by %s, which takes that for congestion, is foreseen to carry %.2g%s Mbit/s",
		p.Name, 100*lost.Share, control, most/1e6, of)
}

// lossy is what memory's paths lose, of all that goes over them.
type lossy struct {
	policy.Loses
	rate  int64 // what all carry, bit/s; 0: unknown
	notes []string
}

// tried is one of memory's paths, and what its train told.
type tried struct {
	peer.Path
	train probe.Train // zero: there was none
	heeds string      // see heedsLoss
}

// lossyPaths waits for the trains. Paths that answered none of theirs are taken to lose nothing, as they may be down
// for a while.
func (m *outgoing) lossyPaths(n config.Neighbour) lossy {
	var all []tried
	for _, p := range m.answering(m.paths(n)) {
		one := tried{Path: p, heeds: m.heedsLoss(p)}
		if answer := m.work.trains[ways.Ends(p)]; answer != nil {
			one.train = <-answer
			m.work.trains[ways.Ends(p)] = nil
		}
		all = append(all, one)
	}
	out := lossOf(all, channelsOver(m.plan, len(all)))
	if carried := m.carried(n); out.rate == 0 || carried > 0 && carried < out.rate {
		out.rate = carried
	}
	out.RTT = m.pauseRTT()
	return out
}

// lossOf is what paths lose together that memory goes over by so many connections. Each counts by what it carries; one
// of which nobody knows that, as one of the others.
func lossOf(all []tried, channels int) (out lossy) {
	var sum, rates, known, unknown float64 // sum: of shares of rates; unknown: of shares
	for _, p := range all {
		lost, rate := loses(p.train), float64(p.Rate)
		switch most := float64(lost.Carries()*8) * max(1, float64(channels)/float64(len(all))); {
		case p.heeds == "":
		case lost.Share == 0 && p.train.Answered > 0 && p.train.Answered < p.train.Sent:
			out.notes = append(out.notes, fmt.Sprintf("path %s lost %d of %d small packets, which may have been chance: where it goes on to lose some the move takes longer than foreseen, as connections by %s take that for congestion",
				p.Name, p.train.Sent-p.train.Answered, p.train.Sent, p.heeds))
		case lost.Share > 0 && (rate == 0 || most < rate):
			out.notes = append(out.notes, lossNote(p.Path, lost, p.heeds, most))
			rate = most
		}
		if rate == 0 {
			unknown += lost.Share
			continue
		}
		known++
		sum, rates = sum+rate*lost.Share, rates+rate
	}
	switch count := float64(len(all)); {
	case count == 0:
	case known == 0:
		out.Share = unknown / count
	default:
		out.Share = (sum/rates*known + unknown) / count
		if known == count {
			out.rate = int64(rates * (1 - out.Share))
		}
	}
	return out
}
