package scenario

import (
	"fmt"
	"slices"
	"time"

	"github.com/goccy/go-yaml/ast"

	"godwit/internal/units"
)

var (
	expectKinds = []string{ExpectMigrations, ExpectConnections, ExpectServiceGap, ExpectVMDowntime,
		ExpectNetworkDowntime, ExpectMigrationTime, ExpectDroppedPackets, ExpectLeftovers}
	outcomes = []string{"completed", "aborted", "refused"}
)

func (f *file) readExpect(n ast.Node) {
	o, ok := f.object(n, "expectation", expectKinds)
	if !ok {
		return
	}
	if len(o.fields) != 1 {
		if entries, _ := pairs(n); len(entries) != 1 {
			f.wrong(o.at, fmt.Sprintf("expectation with %d keys", len(entries)), "exactly one of "+join(expectKinds)+"; a list entry for each")
		}
		return
	}
	e := Expect{Line: o.at.line}
	for kind := range o.fields {
		e.Kind = kind
	}
	switch e.Kind {
	case ExpectMigrations:
		e.Outcomes, e.Each = f.outcomes(o)
	case ExpectConnections:
		if o.word(e.Kind, "", "survive", "moved") == "moved" {
			e.Kind = ExpectMoved
		}
	case ExpectLeftovers:
		o.word(e.Kind, "", "none")
	case ExpectServiceGap:
		if m, ok := f.object(o.fields[e.Kind].node, e.Kind, []string{"traffic", "below"}); ok && m.need("traffic", "below") {
			e.Traffic = m.known("traffic", "traffic", f.traffic)
			if e.Traffic != "" && slices.ContainsFunc(f.out.Traffic, func(t Traffic) bool { return t.Name == e.Traffic && t.Kind == "exec" }) {
				m.wrong("traffic", "service_gap of traffic "+e.Traffic+" of kind exec, whose command nobody counts", "traffic of another kind")
			}
			e.Below = below(m)
		}
	case ExpectDroppedPackets:
		f.dropped(o, &e)
	default:
		if m, ok := f.object(o.fields[e.Kind].node, e.Kind, []string{"guest", "below"}); ok && m.need("below") && (len(f.guests) == 1 || m.need("guest")) {
			e.Guest = m.known("guest", "guest", f.guests)
			if !m.has("guest") {
				e.Guest = f.guests[0]
			}
			e.Below = below(m)
		}
	}
	f.out.Expect = append(f.out.Expect, e)
}

// below reads a bound that something can be smaller than.
func below(m *object) time.Duration {
	d := m.duration("below", 1)
	if d == 0 {
		m.wrong("below", "nothing is below zero", units.AllowedDuration)
	}
	return d
}

// outcomes reads one outcome for all migrations, or a list of one for each.
func (f *file) outcomes(o *object) (list []string, each bool) {
	switch o.fields[ExpectMigrations].node.(type) {
	case *ast.SequenceNode:
	case *ast.StringNode:
		return []string{o.word(ExpectMigrations, "", outcomes...)}, false
	default:
		o.wrongType(ExpectMigrations, join(outcomes)+", or a list of them")
		return nil, false
	}
	for _, n := range o.list(ExpectMigrations) {
		list = append(list, f.entry(o, ExpectMigrations, n).word(ExpectMigrations, "", outcomes...))
	}
	if len(list) == 0 {
		o.wrong(ExpectMigrations, "no outcome is listed", "one outcome for all migrations, or a list of one for each")
	}
	return list, true
}

// dropped reads a number, none, {below: N}, or {guest, below: N}.
func (f *file) dropped(o *object, e *Expect) {
	node := o.fields[e.Kind].node
	if text, isText := node.(*ast.StringNode); isText && text.Value == "none" {
		return
	}
	_, isMap := pairs(node)
	if _, isNumber := node.(*ast.IntegerNode); !isMap && !isNumber {
		o.wrongType(e.Kind, "none, a whole number, or {guest, below}")
		return
	}
	if !isMap {
		e.AtMost = o.number(e.Kind, 0, 0, 1<<40)
		return
	}
	m, _ := f.object(node, e.Kind, []string{"guest", "below"})
	if m.need("below") {
		e.AtMost = m.number("below", 1, 1, 1<<40) - 1
	}
	e.Guest = m.known("guest", "guest", f.guests)
}
