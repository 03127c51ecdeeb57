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
	Sent, Answered int
	RTT            time.Duration // of those that were answered, that of the middle one; 0: none was
}

// trainLeast is for how long at least answers are waited for after the last packet, beside half as long again as the longest so far took.
const trainLeast = 100 * time.Millisecond

// Loss sends so many packets of Least bytes from local to the reflector at remote, one each every, and waits for their answers: until all are there, or none
// can be expected any more.
func Loss(ctx context.Context, local netip.Addr, remote netip.AddrPort, token []byte, packets int, every time.Duration) (Train, error) {
	conn, err := udpAt(ctx, netip.AddrPortFrom(local, 0))
	if err != nil {
		return Train{}, fmt.Errorf("probe path from %s: %w", local, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	out, heads := Train{}, make([]time.Time, packets)
	payload := make([]byte, Least-headers(local))
	copy(payload, token)
	answer, trips := make([]byte, len(payload)+1), make([]time.Duration, 0, packets)
	next, last := time.Now(), time.Time{} // when the next is due, and when the last answer is
	for out.Answered < packets {
		if now := time.Now(); out.Sent < packets && !now.Before(next) {
			binary.BigEndian.PutUint16(payload[TokenLength:], uint16(out.Sent)) //nolint:gosec // few
			heads[out.Sent], next = now, now.Add(every)
			if _, err := conn.WriteToUDPAddrPort(payload, remote); err != nil && ctx.Err() == nil {
				return out, fmt.Errorf("probe path from %s: %w", local, err)
			}
			out.Sent++
			last = now.Add(trainLeast)
		}
		until := next
		if out.Sent == packets {
			if until = last; len(trips) > 0 {
				until = until.Add(slices.Max(trips) * 3 / 2)
			}
			if !time.Now().Before(until) || ctx.Err() != nil {
				break
			}
		}
		conn.SetReadDeadline(until) //nolint:errcheck // reading fails, too
		n, _, err := conn.ReadFromUDPAddrPort(answer)
		if ctx.Err() != nil {
			break
		}
		if err != nil || n != len(payload) || !bytes.Equal(answer[:TokenLength], payload[:TokenLength]) {
			continue
		}
		if number := int(binary.BigEndian.Uint16(answer[TokenLength:])); number < out.Sent && !heads[number].IsZero() {
			out.Answered++
			trips = append(trips, time.Since(heads[number]))
			heads[number] = time.Time{} // one that comes twice counts once
		}
	}
	if slices.Sort(trips); len(trips) > 0 {
		out.RTT = trips[len(trips)/2]
	}
	return out, nil
}
