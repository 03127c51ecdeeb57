package scenario

import (
	"slices"

	"github.com/goccy/go-yaml/ast"
)

// mostMeant bounds the unknown keys of a file that are looked at: it takes time, and no more than maxErrors of them are
// told.
const mostMeant = 256

// readAsMeant has keys that are unknown, which was said, stand for those that they are near to, where these are not
// there: it would be said beside that these are missing, and that nothing has the names below them. Nor is it said that
// the value is none of theirs: that may be the mistake. What is wrong in a map or list that is one of theirs is said.
// One that is near to none may have been meant for any.
func (o *object) readAsMeant(unknown []*ast.MappingValueNode, keys []string) {
	if o.r.guessed == nil {
		o.r.guessed = map[ast.Node]bool{}
	}
	for _, e := range unknown {
		if o.r.meant == mostMeant {
			return
		}
		o.r.meant++
		switch key := nearest(textOf(e.Key), keys); {
		case key == "":
			o.odd++
		case !o.has(key):
			o.fields[key] = field{key: at(e.Key), node: e.Value, guessed: true}
			o.r.guessed[e.Value] = true
		}
	}
}

// unknown reports a word that is none of the known ones.
func (o *object) unknown(key, what, allowed, word string, known []string) {
	f := o.fields[key]
	_, isMap := pairs(f.node)
	_, isList := f.node.(*ast.SequenceNode)
	if f.guessed && !isMap && !isList { // it may be right where it was meant
		o.r.hushed++
		return
	}
	o.r.unknown(o.place(key), what, allowed, word, known)
}

// unsure says of keys that none of them is there, and that one may be meant by another that is unknown: what follows
// from their absence is not said.
func (o *object) unsure(keys ...string) bool { return o.odd > 0 && !slices.ContainsFunc(keys, o.has) }

// textOf is a key's.
func textOf(key ast.Node) string {
	if s, ok := key.(*ast.StringNode); ok {
		return s.Value
	}
	return ""
}
