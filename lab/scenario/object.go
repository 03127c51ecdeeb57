package scenario

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"

	"godwit/internal/units"
	"godwit/internal/yamltext"
)

// object is one map of the file, whose keys have been checked.
type object struct {
	r      *reader
	what   string // "site montreal", for messages
	at     place
	fields map[string]field
	odd    int // how many unknown keys are near to none, see readAsMeant
}

type field struct {
	key     place
	node    ast.Node
	guessed bool // the key is another, which this is near to
}

// object reads a map with these keys. Anything else in it is reported. ok is
// false when n is no map at all (reported too).
func (r *reader) object(n ast.Node, what string, keys []string) (o *object, ok bool) {
	o = &object{r: r, what: what, at: at(n), fields: map[string]field{}}
	entries, isMap := pairs(n)
	if !isMap {
		if r.guessed[n] {
			r.hushed++
			return o, false
		}
		r.wrong(at(n), fmt.Sprintf("%s is %s", what, kind(n)), "a map with "+strings.Join(keys, ", "))
		return o, false
	}
	var unknown []*ast.MappingValueNode
	for _, e := range entries {
		key, isText := e.Key.(*ast.StringNode)
		if !isText {
			r.wrong(at(e.Key), "key of "+what+" is no plain word", strings.Join(keys, ", "))
			continue
		}
		if !slices.Contains(keys, key.Value) {
			r.unknown(at(key), fmt.Sprintf("unknown key %q in %s", short(key.Value), what), strings.Join(keys, ", "), key.Value, keys)
			unknown = append(unknown, e)
			continue
		}
		if first, twice := o.fields[key.Value]; twice {
			r.wrong(at(key), fmt.Sprintf("key %q in %s again (first in line %d)", key.Value, what, first.key.line), "each key once")
			continue
		}
		o.fields[key.Value] = field{key: at(key), node: e.Value}
	}
	o.readAsMeant(unknown, keys)
	return o, true
}

// has tells whether the key was given.
func (o *object) has(key string) bool { _, ok := o.fields[key]; return ok }

// empty tells whether the key stands there without a value.
func (o *object) empty(key string) bool {
	f, ok := o.fields[key]
	_, null := f.node.(*ast.NullNode)
	return ok && (null || f.node == nil)
}

// place of the key's value, or of the object where it has none.
func (o *object) place(key string) place {
	f, ok := o.fields[key]
	if !ok {
		return o.at
	}
	if o.empty(key) {
		return f.key
	}
	return at(f.node)
}

func (o *object) wrong(key, what, allowed string) { o.unknown(key, what, allowed, "", nil) }

// need reports the keys that are missing.
func (o *object) need(keys ...string) bool {
	missing := slices.DeleteFunc(slices.Clone(keys), o.has)
	for _, key := range missing {
		if len(missing) > o.odd {
			o.r.wrong(o.at, fmt.Sprintf("%s has no %s", o.what, key), "a map with at least "+join(keys))
		}
	}
	return len(missing) == 0
}

// wrongType reports a value of another type than the key's.
func (o *object) wrongType(key, allowed string) {
	if o.fields[key].guessed {
		o.r.hushed++
		return
	}
	o.wrong(key, fmt.Sprintf("%s of %s is %s", key, o.what, kind(o.fields[key].node)), allowed)
}

// text reads a string that stands there as one.
func (o *object) text(key, allowed string) (string, bool) {
	f, ok := o.fields[key]
	if !ok {
		return "", false
	}
	switch n := f.node.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	}
	o.wrongType(key, allowed)
	return "", false
}

const (
	allowedName  = "letters, digits, - and _, at most 40 characters, first a letter or digit (in quotes where it is a number)"
	allowedTitle = "a line of text, at most 200 characters (in quotes where it is a number)"

	maxTitle = 200 // characters of the scenario's name
)

var nameShape = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,39}$`)

// name reads a new name.
func (o *object) name(key string) string {
	s, ok := o.text(key, allowedName)
	if ok && !nameShape.MatchString(s) {
		o.wrong(key, fmt.Sprintf("%s %q", key, short(s)), allowedName)
		return ""
	}
	return s
}

// title reads what names nothing but the scenario, for people.
func (o *object) title(key string) string {
	s, ok := o.text(key, allowedTitle)
	s = strings.TrimSpace(s)
	plain := utf8.ValidString(s) && strings.IndexFunc(s, unicode.IsControl) < 0
	if ok && (s == "" || !plain || utf8.RuneCountInString(s) > maxTitle) {
		o.wrong(key, fmt.Sprintf("%s %q", key, short(s)), allowedTitle)
	}
	return s
}

// command reads a shell command; what YAML takes for a number or a truth value is one too.
func (o *object) command(key string) (string, bool) {
	if f, ok := o.fields[key]; ok {
		switch f.node.(type) {
		case *ast.BoolNode, *ast.IntegerNode, *ast.FloatNode:
			return f.node.GetToken().Value, true
		}
	}
	s, ok := o.text(key, allowedCommand)
	if ok && strings.ContainsRune(s, 0) {
		o.wrong(key, fmt.Sprintf("%s of %s has a zero byte, which no program can be given", key, o.what), allowedCommand)
	}
	return s, ok
}

const allowedCommand = "a shell command"

// word reads one of the known words; standard when the key is not there.
func (o *object) word(key, standard string, known ...string) string {
	if !o.has(key) {
		return standard
	}
	allowed := strings.Join(known, ", ")
	s, ok := o.text(key, allowed)
	if ok && !slices.Contains(known, s) {
		o.unknown(key, fmt.Sprintf("unknown %s %q of %s", key, short(s), o.what), allowed, s, known)
		return standard
	}
	if !ok {
		return standard
	}
	return s
}

// mostListed bounds the names in a message.
const mostListed = 30

// known reads a name that is defined elsewhere in the file.
func (o *object) known(key, thing string, names []string) string {
	name := ""
	switch n := o.fields[key].node.(type) {
	case *ast.StringNode:
		name = n.Value
	case *ast.LiteralNode:
		name = n.Value.Value
	}
	if name != "" && slices.Contains(names, name) { // "" stands for what has a wrong one
		return name
	}
	allowed := listed(names)
	switch n := o.fields[key].node.(type) {
	case *ast.StringNode, *ast.LiteralNode:
		if name != "" && slices.Contains(names, "") { // it may be the one
			return ""
		}
	case *ast.BoolNode, *ast.IntegerNode, *ast.FloatNode:
		if slices.Contains(names, "") {
			return ""
		}
		if name := n.GetToken().Value; slices.Contains(names, name) {
			allowed = fmt.Sprintf("%q, in quotes", name)
		}
	}
	if name, ok := o.text(key, allowed); ok {
		o.unknown(key, fmt.Sprintf("unknown %s %q", thing, short(name)), allowed, name, names)
	}
	return ""
}

// listed names those that are defined, or the first of them.
func listed(names []string) string {
	var first []string
	more := 0
	for _, name := range names {
		switch {
		case name == "":
		case len(first) < mostListed:
			first = append(first, name)
		default:
			more++
		}
	}
	switch {
	case len(first) == 0:
		return "none is defined"
	case more > 0:
		return fmt.Sprintf("%s, and %d more", join(first), more)
	}
	return join(first)
}

// measure reads a number with its unit by one of the Parse functions.
func measure[T any](o *object, key string, standard T, allowed string, parse func(string) (T, error)) T {
	f, ok := o.fields[key]
	if !ok {
		return standard
	}
	var text string
	switch n := f.node.(type) {
	case *ast.StringNode:
		text = n.Value
	case *ast.IntegerNode, *ast.FloatNode:
		text = n.GetToken().Value
	default:
		o.wrongType(key, allowed)
		return standard
	}
	v, err := parse(text)
	if err != nil {
		what := fmt.Sprintf("%s of %s is %q: %v", key, o.what, short(text), err)
		if errors.Is(err, units.ErrNoUnit) {
			what = fmt.Sprintf("%s of %s is %s without a unit", key, o.what, short(text))
		}
		o.wrong(key, what, allowed)
		return standard
	}
	return v
}

func (o *object) duration(key string, standard time.Duration) time.Duration {
	return measure(o, key, standard, units.AllowedDuration, units.Duration)
}

func (o *object) rate(key string) int64 {
	return measure(o, key, 0, units.AllowedRate, units.Rate)
}

func (o *object) size(key string, standard int64) int64 {
	return measure(o, key, standard, units.AllowedSize, units.Size)
}

func (o *object) percent(key string) float64 {
	return measure(o, key, 0, units.AllowedPercent, units.Percent)
}

// number reads a whole number in a range.
func (o *object) number(key string, standard, low, high int64) int64 {
	f, ok := o.fields[key]
	if !ok {
		return standard
	}
	allowed := fmt.Sprintf("a whole number from %d to %d", low, high)
	n, isInt := f.node.(*ast.IntegerNode)
	if !isInt {
		o.wrongType(key, allowed)
		return standard
	}
	var v int64
	switch x := n.Value.(type) {
	case int64:
		v = x
	case uint64:
		v = int64(min(x, 1<<62))
	}
	if v < low || v > high {
		o.wrong(key, fmt.Sprintf("%s of %s is %s", key, o.what, short(n.GetToken().Value)), allowed)
		return standard
	}
	return v
}

// flag reads true or false.
func (o *object) flag(key string) bool {
	f, ok := o.fields[key]
	if !ok {
		return false
	}
	n, isBool := f.node.(*ast.BoolNode)
	if !isBool {
		o.wrongType(key, "true, false")
		return false
	}
	return n.Value
}

// list reads the entries of a list; none when the key is not there.
func (o *object) list(key string) []ast.Node {
	f, ok := o.fields[key]
	if !ok {
		return nil
	}
	if !o.isList(key) {
		o.wrongType(key, "a list")
		return nil
	}
	seq, isSeq := f.node.(*ast.SequenceNode)
	if !isSeq {
		return nil
	}
	if len(seq.Values) > yamltext.MaxList {
		o.wrong(key, fmt.Sprintf("%s of %s has %d entries", key, o.what, len(seq.Values)), fmt.Sprintf("at most %d", yamltext.MaxList))
		return nil
	}
	return seq.Values
}

// isList tells whether the key's value is a list, or nothing, which is an empty
// one.
func (o *object) isList(key string) bool {
	f, ok := o.fields[key]
	if !ok {
		return false
	}
	switch f.node.(type) {
	case nil, *ast.NullNode, *ast.SequenceNode:
		return true
	}
	return false
}

// prefix reads a subnet of one address family, with least to most bits.
func (o *object) prefix(key string, v4 bool, least, most int, allowed string) netip.Prefix {
	if !o.has(key) {
		return netip.Prefix{}
	}
	s, ok := o.text(key, allowed)
	if !ok {
		return netip.Prefix{}
	}
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil || p.Addr().Is4() != v4 || p.Addr().Is4In6():
		o.wrong(key, fmt.Sprintf("%s of %s is %q", key, o.what, short(s)), allowed)
		return netip.Prefix{}
	case p.Bits() < least || p.Bits() > most: // before its start is named, which would be none that is allowed
		o.wrong(key, fmt.Sprintf("%s of %s is %s", key, o.what, p), allowed)
		return netip.Prefix{}
	case p != p.Masked():
		o.wrong(key, fmt.Sprintf("%s of %s is %q, which is not the start of its subnet", key, o.what, short(s)), p.Masked().String())
		return netip.Prefix{}
	}
	return p
}
