package config

import (
	"errors"
	"fmt"
	"io"
	"math"
	gotypes "reflect" // reflect is a word of ours
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"godwit/internal/oneline"
	"godwit/internal/textfile"
	"godwit/internal/units"
	"godwit/internal/yamltext"
)

// quantity is how the value of a key may be written beside a plain number.
type quantity struct {
	parse   func(string) (int64, error)
	allowed string
}

var (
	aRate = quantity{units.Rate, units.AllowedRate}
	aSize = quantity{units.Size, units.AllowedSize}
)

// readYAML reads the one document of a file into value. Keys that value does not
// know are errors; those in quantities may have a unit. An error is one line,
// `FILE:LINE:COL: what is wrong`, and value is not to be used then. root is the document, with its places.
func readYAML(path string, value any, quantities map[string]quantity) (root ast.Node, err error) {
	f, err := textfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, yamltext.MaxFile+1))
	if err != nil {
		return nil, err
	}
	text, fault, ok := yamltext.Text(data)
	if !ok {
		return nil, fmt.Errorf("%s:%d:%d: %s; allowed: %s", path, fault.Line, fault.Col, fault.What, fault.Allowed)
	}
	defer func() { // the parser is other people's
		if recover() != nil {
			err = fmt.Errorf("%s:1:1: not YAML", path)
		}
	}()
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil, atPlace(path, err)
	}
	for _, doc := range file.Docs {
		switch {
		case doc == nil || doc.Body == nil || doc.Body.Type() == ast.CommentType:
		case root != nil:
			return nil, atPlace(path, &misplaced{doc.Body.GetToken(), "second document; one is allowed"})
		default:
			root = doc.Body
		}
	}
	if root == nil {
		return nil, fmt.Errorf("%s:1:1: it is empty", path)
	}
	w := &unitWalk{quantities: quantities}
	ast.Walk(w, root)
	if w.err != nil {
		return nil, atPlace(path, w.err)
	}
	p := plain(gotypes.TypeOf(value).Elem())
	if ast.Walk(p, root); p.err != nil {
		return nil, atPlace(path, p.err)
	}
	err = ofType(root, yaml.NodeToValue(root, value, yaml.Strict()))
	var theirs yaml.Error
	var ours *misplaced
	if err != nil && !errors.As(err, &theirs) && !errors.As(err, &ours) { // of a type that reads its own text, such as an address
		q := &quoted{what: err.Error()}
		ast.Walk(q, root)
		err = &misplaced{q.token, q.inWords(root)}
	}
	return root, atPlace(path, err)
}

// quoted looks for the word that an error quotes.
type quoted struct {
	what  string
	token *token.Token
}

// Visit looks at one node.
func (q *quoted) Visit(n ast.Node) ast.Visitor {
	if q.token == nil && n.Type() == ast.StringType && strings.Contains(q.what, strconv.Quote(n.GetToken().Value)) {
		q.token = n.GetToken()
	}
	return q
}

// inWords says of what is quoted what it should be.
func (q *quoted) inWords(root ast.Node) string {
	k := &keyed{token: q.token}
	said := ownText(q.what)
	if q.token == nil || said == "" {
		return q.what
	}
	if ast.Walk(k, root); k.key == "" {
		return q.what
	}
	return k.key + ": " + said
}

// ofType says of a value of the wrong type what it should be, where the parser names types of Go.
func ofType(root ast.Node, err error) error {
	var wrong *yaml.TypeError
	var large *yaml.OverflowError
	k := &keyed{}
	what := ""
	switch {
	case errors.As(err, &wrong):
		k.token, what = wrong.Token, shouldBe(wrong.DstType)
	case errors.As(err, &large):
		k.token, what = large.Token, "too large, or negative"
	}
	if what == "" {
		return err
	}
	ast.Walk(k, root)
	if k.key == "" {
		return err
	}
	return &misplaced{k.token, k.key + ": " + what}
}

// shouldBe is what a value must be to be taken for type t; "": no better word than the parser's.
func shouldBe(t gotypes.Type) string {
	switch {
	case t == gotypes.TypeFor[time.Duration]():
		return "not a time; give it a unit, such as 20s, 10m or 12h"
	case t.Kind() >= gotypes.Int && t.Kind() <= gotypes.Uint64:
		return "not a whole number"
	case t.Kind() == gotypes.Bool:
		return "neither true nor false"
	case t.Kind() == gotypes.Slice:
		return "not a list"
	case t.Kind() == gotypes.String:
		return "not a text"
	}
	return ""
}

// keyed looks for the key of a value.
type keyed struct {
	token *token.Token // the value's
	key   string
}

// Visit looks at one key and its value.
func (k *keyed) Visit(n ast.Node) ast.Visitor {
	if entry, ok := n.(*ast.MappingValueNode); ok && entry.Value.GetToken() == k.token {
		k.key = entry.Key.String()
	}
	return k
}

// misplaced is an error of ours with the token that it is about.
type misplaced struct {
	token *token.Token
	what  string
}

func (m *misplaced) Error() string { return m.what }

// atPlace puts file, line and column before an error of the parser or of ours.
func atPlace(path string, err error) error {
	if err == nil {
		return nil
	}
	what, tk := err.Error(), (*token.Token)(nil)
	var theirs yaml.Error
	var ours *misplaced
	switch {
	case errors.As(err, &ours):
		tk = ours.token
	case errors.As(err, &theirs):
		what, tk = theirs.GetMessage(), theirs.GetToken()
	}
	if strings.Contains(what, "'\t'") { // which would be shown as a space
		what = "a tab where a line is indented; allowed: spaces there"
	}
	line, column := 1, 1
	if tk != nil && tk.Position != nil {
		line, column = tk.Position.Line, tk.Position.Column
	}
	return fmt.Errorf("%s:%d:%d: %s", path, line, column, oneline.Of(strings.Join(strings.Fields(what), " ")))
}

// unitWalk turns quantities with a unit into plain numbers. One that is not whole lacks its unit: the parser would cut
// it off.
type unitWalk struct {
	quantities map[string]quantity
	err        error // the first
}

// Visit looks at one key and its value.
func (w *unitWalk) Visit(n ast.Node) ast.Visitor {
	entry, ok := n.(*ast.MappingValueNode)
	if !ok || w.err != nil {
		return w
	}
	q, ok := w.quantities[entry.Key.String()]
	if !ok {
		return w
	}
	text := entry.Value.GetToken()
	switch n := entry.Value.(type) {
	case *ast.StringNode:
	case *ast.FloatNode:
		if n.Value == math.Trunc(n.Value) { // such as 3.5e8
			return w
		}
	default:
		return w
	}
	v, err := q.parse(text.Value)
	if err != nil {
		w.err = &misplaced{text, fmt.Sprintf("%s %q: %v; allowed: a plain number, or %s", entry.Key, text.Value, err, q.allowed)}
		return nil
	}
	entry.Value = ast.Integer(&token.Token{Type: token.IntegerType, Value: strconv.FormatInt(v, 10), Position: text.Position})
	return w
}
