package probe

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Train is small packets that were sent one after another, to see how many get there and back.
type Train struct {
	Sent, Answered int           // Sent: without those that were waited for too shortly
	RTT            time.Duration // of those that were answered, that of the middle one; 0: none was
}

// trainLeast is for how long at least answers are waited for after the last packet, beside half as long again as the
// longest so far took.
const trainLeast = 100 * time.Millisecond

// packet is one of a train.
type packet struct {
	sent time.Time     // zero: it was not
	took time.Duration // until its answer came; 0: none has
}

// Loss sends so many packets of Least bytes from local to the reflector at remote, one each every, and waits for their
// answers: until all are there, or none can be expected any more. As long as there is none that may be at any time, as
// paths may be long, until ctx ends.
func Loss(ctx context.Context, local netip.Addr, remote netip.AddrPort, token []byte, packets int, every time.Duration) (Train, error) {
	conn, err := udpAt(ctx, netip.AddrPortFrom(local, 0))
	if err != nil {
		return Train{}, fmt.Errorf("probe path from %s: %w", local, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	all, sent, answered := make([]packet, packets), 0, 0
	payload := make([]byte, Least-headers(local))
	copy(payload, token)
	answer, longest := make([]byte, len(payload)+1), time.Duration(0)
	next := time.Now() // when the next is due
	for answered < packets {
		if now := time.Now(); sent < packets && !now.Before(next) {
			binary.BigEndian.PutUint16(payload[TokenLength:], uint16(sent)) //nolint:gosec // few
			all[sent].sent, next = now, now.Add(every)
			if _, err := conn.WriteToUDPAddrPort(payload, remote); err != nil && ctx.Err() == nil {
				return Train{}, fmt.Errorf("probe path from %s: %w", local, err)
			}
			sent++
		}
		until := next
		if sent == packets {
			until = time.Time{} // for as long as ctx lets it
			if longest > 0 {
				until = all[sent-1].sent.Add(trainLeast + longest*3/2)
			}
		}
		if ctx.Err() != nil || sent == packets && longest > 0 && !time.Now().Before(until) {
			break
		}
		conn.SetReadDeadline(until) //nolint:errcheck // reading fails, too
		n, _, err := conn.ReadFromUDPAddrPort(answer)
		if ctx.Err() != nil {
			break
		}
		if err != nil || n != len(payload) || !bytes.Equal(answer[:TokenLength], payload[:TokenLength]) {
			continue
		}
		if number := int(binary.BigEndian.Uint16(answer[TokenLength:])); number < sent && all[number].took == 0 { // one that comes twice counts once
			all[number].took = max(1, time.Since(all[number].sent))
			answered, longest = answered+1, max(longest, all[number].took)
		}
	}
	return tally(all[:sent], time.Now()), nil
}

// tally counts packets that were sent, and of which answers were waited for until end. What was sent so late that nine
// answers of ten would not be there by then tells nothing, be it answered or not.
func tally(sent []packet, end time.Time) (out Train) {
	var trips []time.Duration
	for _, p := range sent {
		if p.took > 0 {
			trips = append(trips, p.took)
		}
	}
	out.Sent, out.Answered = len(sent), len(trips)
	if len(trips) == 0 {
		return out
	}
	slices.Sort(trips)
	for _, p := range sent {
		if len(trips) == len(sent) || !p.sent.Add(trips[len(trips)*9/10]).After(end) {
			continue // all are there: nothing more was waited for
		}
		if out.Sent--; p.took > 0 {
			out.Answered--
		}
	}
	out.RTT = trips[len(trips)/2]
	return out
}
