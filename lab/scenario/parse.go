package scenario

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"godwit/internal/units"
)

var topKeys = []string{"name", "sites", "clients", "guests", "traffic", "steps", "end", "expect"}

// Parse reads a scenario file; name stands for it in messages. On failure the
// error is *Errors, everything wrong up to ten, and the Scenario is nil.
func Parse(name string, data []byte) (*Scenario, error) {
	f := &file{reader: reader{file: name}, out: &Scenario{File: name}}
	if root := f.tree(data); root != nil {
		f.read(root)
	}
	if err := gather(f.found); err != nil {
		return nil, err
	}
	return f.out, nil
}

// file is a scenario on its way to be read. Names are collected before anything
// refers to them, so that the order in the file does not matter.
type file struct {
	reader
	out     *Scenario
	timed   bool          // the timeout is stated
	lingers time.Duration // after_last_migration, where it is stated and the timeout is not

	sites, hosts, clients, guests, traffic []string
	places                                 []string            // sites and hosts: the words that a migration's destination may be
	misread                                map[string]bool     // sites of whose guest_net something could not be read
	uplinks                                map[string][]string // of a site
	housed                                 map[string]int      // guests of a site
}

func (f *file) read(root ast.Node) {
	top, ok := f.object(root, "the scenario", topKeys)
	if !ok {
		return
	}
	top.need("name", "sites")
	f.out.Name = top.title("name")
	f.uplinks, f.housed, f.misread = map[string][]string{}, map[string]int{}, map[string]bool{}
	f.readSites(top)
	f.places = union(f.sites, f.hosts)
	f.readEnd(top)
	for _, n := range f.entries(top, "clients", &f.clients) {
		f.readClient(n)
	}
	for _, n := range f.entries(top, "guests", &f.guests) {
		f.readGuest(n)
	}
	for _, n := range f.entries(top, "traffic", &f.traffic) {
		f.readTraffic(n)
	}
	for _, n := range top.list("steps") {
		f.readStep(n)
	}
	slices.SortStableFunc(f.out.Steps, byTime)
	for _, n := range top.list("expect") {
		f.readExpect(n)
	}
}

// byTime puts steps with a time in its order, before those that wait for a phase.
func byTime(a, b Step) int {
	switch {
	case a.At.Triggered() && b.At.Triggered():
		return 0
	case a.At.Triggered():
		return 1
	case b.At.Triggered():
		return -1
	}
	return int(min(1, max(-1, a.At.Time-b.At.Time)))
}

// entries reads a list of what has names. "" among those stands for what could not be read: whoever refers to
// a name that is not there may mean that, and nothing is said of it beside what is wrong there.
func (f *file) entries(o *object, key string, names *[]string) []ast.Node {
	before := f.faults()
	nodes := o.list(key)
	if f.faults() > before || !o.has(key) && o.odd > 0 {
		*names = append(*names, "")
	}
	return nodes
}

// define adds a new name to those of its sort, or reports that it is taken; "" is one that could not be read.
func (f *file) define(names *[]string, o *object, thing, name string) bool {
	if name == "" {
		*names = append(*names, "")
		return false
	}
	if slices.Contains(*names, name) {
		o.wrong("name", fmt.Sprintf("%s %q is defined twice", thing, name), "each name once")
		return false
	}
	*names = append(*names, name)
	return true
}

// title is how messages call an entry of a list: by its name where it has one.
func title(thing string, n ast.Node) string {
	entries, _ := pairs(n)
	for _, e := range entries {
		key, isKey := e.Key.(*ast.StringNode)
		if value, isText := e.Value.(*ast.StringNode); isKey && isText && key.Value == "name" {
			if !nameShape.MatchString(value.Value) { // nothing that a terminal would obey
				return fmt.Sprintf("%s %q", thing, short(value.Value))
			}
			return thing + " " + value.Value
		}
	}
	return thing
}

func (f *file) readEnd(top *object) {
	f.out.End = End{AfterLastMigration: 5 * time.Second}
	defer f.lateBy(0)
	if !top.has("end") {
		return
	}
	if _, empty := top.fields["end"].node.(*ast.NullNode); empty {
		return
	}
	o, ok := f.object(top.fields["end"].node, "end", []string{"after_last_migration", "timeout"})
	if !ok {
		return
	}
	f.out.End.AfterLastMigration = o.duration("after_last_migration", f.out.End.AfterLastMigration)
	if f.timed = o.has("timeout"); !f.timed {
		if o.has("after_last_migration") {
			f.lingers = f.out.End.AfterLastMigration
		}
		return
	}
	const unread = -1
	if f.out.End.Timeout = o.duration("timeout", unread); f.out.End.Timeout <= 0 { // nothing is after it
		if f.timed = false; f.out.End.Timeout == 0 {
			o.wrong("timeout", "timeout of end is zero", units.AllowedDuration)
		}
	} else if after := f.out.End.AfterLastMigration; !o.has("after_last_migration") { // a short timeout leaves time before, too
		f.out.End.AfterLastMigration = min(after, f.out.End.Timeout/2)
	} else if after >= f.out.End.Timeout {
		o.wrong("timeout", fmt.Sprintf("timeout of end is %s, and after_last_migration %s: no run ends in time", f.out.End.Timeout, after), "a longer time than after_last_migration")
	}
}

// A run that states no timeout has so long at least, and so long after the last that begins by the clock; and what
// it states that it goes on after the last migration.
const (
	leastTimeout = 10 * time.Minute
	timeoutAfter = 5 * time.Minute
)

// lateBy reports what does not begin before a stated timeout: what begins with it is in the run by chance, or not. What
// begins later than all before makes an unstated one longer.
func (f *file) lateBy(begins time.Duration) bool {
	if f.timed {
		return begins >= f.out.End.Timeout
	}
	f.out.End.Timeout = max(f.out.End.Timeout, leastTimeout, begins+timeoutAfter+f.lingers)
	return false
}

// union keeps the order and drops repetitions.
func union(lists ...[]string) []string {
	var out []string
	for _, s := range slices.Concat(lists...) {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

func join(words []string) string { return strings.Join(words, ", ") }
