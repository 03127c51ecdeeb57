package topo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"time"

	"godwit/lab/wan"
)

// Result is one thing that a link was asked for, and what it gave.
type Result struct {
	Name  string  `json:"name"`  // the path that was built
	What  string  `json:"what"`  // rtt, rate, loss
	Unit  string  `json:"unit"`  // ms, Mbit/s, %
	Asked float64 `json:"asked"` // rtt and loss of the path, rate of its slower link
	Got   float64 `json:"got"`   // rtt: median; rate: of IP packets, from TCP goodput; loss: of datagrams
	Links string  `json:"links"` // netem or user
	OK    bool    `json:"ok"`    // within 5 % of what was asked
}

// tolerance is how far from the asked a result may be.
const tolerance = 0.05

// judged is r, which is OK or not.
func (r Result) judged() Result {
	r.OK = math.Abs(r.Got-r.Asked) <= tolerance*r.Asked
	return r
}

func (r Result) amount(x float64) string { return fmt.Sprintf("%.4g %s", x, r.Unit) }

// String is its line of the table.
func (r Result) String() string {
	verdict := "ok"
	if !r.OK {
		verdict = "OFF"
	}
	return fmt.Sprintf("%-19s  %-4s  %12s  %12s  %+6.1f %%  %-3s %s", r.Name, r.What, r.amount(r.Asked),
		r.amount(r.Got), 100*(r.Got-r.Asked)/r.Asked, verdict, r.Links)
}

// trial is a path of two equal links between two sites.
type trial struct {
	rtt  time.Duration
	rate int64
	loss float64 // of one link, both directions
}

func (c trial) String() string {
	name := fmt.Sprintf("%d ms", c.rtt.Milliseconds())
	if c.rate > 0 {
		name += fmt.Sprintf(", %d Mbit/s", c.rate/1e6)
	}
	if c.loss > 0 {
		name += fmt.Sprintf(", loss %g %%", 100*c.loss)
	}
	return name
}

var trials = []trial{
	{rtt: 20 * time.Millisecond, rate: 100e6},
	{rtt: 20 * time.Millisecond, rate: 350e6},
	{rtt: 20 * time.Millisecond, rate: 1000e6},
	{rtt: 150 * time.Millisecond, rate: 100e6},
	{rtt: 150 * time.Millisecond, rate: 350e6},
	{rtt: 150 * time.Millisecond, rate: 1000e6},
	{rtt: 20 * time.Millisecond, loss: 0.01},
}

// SelfTest builds the lab id, a network of two sites, gives its links one property after the
// other, measures what they do and prints a table to w. Its error says what could not
// be measured; a link that is off the mark is a result that is not OK. It takes about
// 70 s and leaves nothing behind.
func SelfTest(ctx context.Context, id string, w io.Writer) ([]Result, error) {
	return selfTest(ctx, id, w, trials)
}

func selfTest(ctx context.Context, id string, w io.Writer, trials []trial) (results []Result, err error) {
	t, err := Build(ctx, Spec{ID: id, Sites: []Site{
		{Name: "a", GuestV4: netip.MustParsePrefix("10.1.1.0/24"), Uplinks: []Uplink{{Name: "wan"}}},
		{Name: "b", GuestV4: netip.MustParsePrefix("10.2.1.0/24"), Uplinks: []Uplink{{Name: "wan"}}},
	}})
	if err != nil {
		return nil, fmt.Errorf("selftest: %w", err)
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	fmt.Fprintf(w, "%-19s  %-4s  %12s  %12s  %8s      %s\n", "path", "what", "asked", "got", "off", "links")
	for _, c := range trials {
		found, err := t.measure(ctx, c)
		if err != nil {
			return results, fmt.Errorf("selftest %s: %w", c, err)
		}
		for _, r := range found {
			fmt.Fprintln(w, r)
		}
		results = append(results, found...)
	}
	return results, nil
}

// measure makes both links like c and looks at the path between the sites' hosts.
func (t *Topo) measure(ctx context.Context, c trial) ([]Result, error) {
	for _, site := range t.spec.Sites {
		if err := t.SetLink(site.Name, "wan", func(l *wan.Link) {
			// A queue of the path's bandwidth-delay product, so that no congestion
			// control leaves the link idle: it is the link that is measured.
			queue := int(float64(c.rate) / 8 * c.rtt.Seconds())
			*l = wan.Link{Rate: c.rate, Delay: c.rtt / 4, Queue: queue}
		}); err != nil {
			return nil, err
		}
	}
	// What the last trial left in the queues would be in the way.
	if err := pause(ctx, 300*time.Millisecond+c.rtt); err != nil {
		return nil, err
	}
	var results []Result
	add := func(what, unit string, asked, got float64) {
		results = append(results, Result{
			Name: c.String(), What: what, Unit: unit, Asked: asked, Got: got, Links: t.links["a/wan"].emulator.Kind(),
		}.judged())
	}
	p := probe{from: t.hosts[0], to: t.hosts[1]}
	rtt, err := p.rtt(ctx)
	if err != nil {
		return nil, err
	}
	add("rtt", "ms", c.rtt.Seconds()*1000, rtt.Seconds()*1000)
	if c.rate > 0 {
		// Long enough that what one lost packet held back does not weigh.
		rate, err := p.rate(ctx, 2*time.Second+20*c.rtt, 2*time.Second+20*c.rtt)
		if err != nil {
			return nil, err
		}
		add("rate", "Mbit/s", float64(c.rate)/1e6, rate/1e6)
	}
	if c.loss > 0 {
		if err := t.SetLink("a", "wan", func(l *wan.Link) { l.Loss = c.loss }); err != nil {
			return nil, err
		}
		loss, err := p.loss(ctx)
		if err != nil {
			return nil, err
		}
		add("loss", "%", 100*c.loss, 100*loss)
	}
	return results, nil
}
