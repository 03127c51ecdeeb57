package config

import (
	"math"
	gotypes "reflect"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// plainWalk keeps numbers as they are written where the parser would change them without a word: one that a text is to be
// (010 became 8), and one that is not whole where whole ones are (1.9 became 1).
type plainWalk struct {
	texts, wholes map[string]bool // keys of these, wherever they stand
	err           error           // the first
}

// plain is a walk of what is to be a t.
func plain(t gotypes.Type) *plainWalk {
	w := &plainWalk{texts: map[string]bool{}, wholes: map[string]bool{}}
	w.learn("", t)
	return w
}

// learn takes in a key and what its value is to be.
func (w *plainWalk) learn(key string, t gotypes.Type) {
	switch kind := t.Kind(); {
	case t == gotypes.TypeFor[time.Duration]():
	case kind == gotypes.Pointer, kind == gotypes.Slice, kind == gotypes.Map:
		w.learn(key, t.Elem())
	case kind == gotypes.String:
		w.texts[key] = true
	case kind >= gotypes.Int && kind <= gotypes.Uint64:
		w.wholes[key] = true
	case kind == gotypes.Struct:
		for f := range t.Fields() {
			if name, _, _ := strings.Cut(f.Tag.Get("yaml"), ","); name != "" {
				w.learn(name, f.Type)
			}
		}
	}
}

// Visit looks at one key and its value, or its values.
func (w *plainWalk) Visit(n ast.Node) ast.Visitor {
	entry, ok := n.(*ast.MappingValueNode)
	if !ok || w.err != nil {
		return w
	}
	key := entry.Key.String()
	if list, isList := entry.Value.(*ast.SequenceNode); isList {
		for i, v := range list.Values {
			list.Values[i] = w.kept(key, v)
		}
		return w
	}
	entry.Value = w.kept(key, entry.Value)
	return w
}

// kept is a value of that key as it is written.
func (w *plainWalk) kept(key string, v ast.Node) ast.Node {
	float, isFloat := v.(*ast.FloatNode)
	_, isInteger := v.(*ast.IntegerNode)
	switch {
	case w.texts[key] && !w.wholes[key] && (isFloat || isInteger):
		return ast.String(v.GetToken())
	case w.wholes[key] && !w.texts[key] && isFloat && float.Value != math.Trunc(float.Value) && w.err == nil:
		w.err = &misplaced{v.GetToken(), key + ": not a whole number"}
	}
	return v
}
