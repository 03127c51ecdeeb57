package scenario

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"godwit/internal/oneline"
	"godwit/internal/yamltext"
)

// MaxFile bounds a scenario file, bytes.
const MaxFile = yamltext.MaxFile

// reader collects what is wrong while the tree is walked.
type reader struct {
	file     string
	found    []finding
	anchors  map[string]ast.Node
	weights  map[ast.Node]int  // see weigh
	repeated int               // nodes that aliases stand for
	meant    int               // how many unknown keys were read as others, or may have been meant for such
	guessed  map[ast.Node]bool // values of such keys
	hushed   int               // what was found of those that the keys may explain
	stop     bool              // the tree has a hole, or is too large, and is not read
}

// place is where a node stands in the file.
type place struct{ line, col int }

// faults is how much is wrong so far, told or not.
func (r *reader) faults() int { return len(r.found) + r.hushed }

func (r *reader) wrong(at place, what, allowed string) { r.unknown(at, what, allowed, "", nil) }

// unknown reports a word that is none of the known ones.
func (r *reader) unknown(at place, what, allowed, word string, known []string) {
	e := Error{File: r.file, Line: at.line, Col: at.col, What: oneline.Of(what), Allowed: oneline.Of(allowed)}
	r.found = append(r.found, finding{Error: e, word: word, known: known})
}

// at finds the place of a node. Maps stand at their first key.
func at(n ast.Node) place {
	var tk *token.Token
	switch n := n.(type) {
	case nil:
		return place{1, 1}
	case *ast.MappingNode:
		tk = n.Start
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return at(n.Values[0].Key)
		}
	case *ast.MappingValueNode:
		return at(n.Key)
	default:
		tk = n.GetToken()
	}
	if tk == nil || tk.Position == nil {
		return place{1, 1}
	}
	return place{tk.Position.Line, tk.Position.Column}
}

// tree parses the bytes to the root node; nil after reporting an error.
func (r *reader) tree(data []byte) (root ast.Node) {
	text, f, ok := yamltext.Text(data)
	if !ok {
		r.wrong(place{f.Line, f.Col}, f.What, f.Allowed)
		return nil
	}
	// The parser is other people's and is known to panic on odd bytes.
	defer func() {
		if e := recover(); e != nil {
			root = nil
			r.wrong(place{1, 1}, "not YAML", "")
		}
	}()
	tokens := lexer.Tokenize(string(text))
	if !r.tabs(tokens) {
		return nil
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		r.syntax(err)
		return nil
	}
	docs := slices.DeleteFunc(file.Docs, func(d *ast.DocumentNode) bool {
		if d == nil || d.Body == nil {
			return true
		}
		_, directive := d.Body.(*ast.DirectiveNode) // %YAML 1.2
		return directive
	})
	switch len(docs) {
	case 0:
		r.wrong(place{1, 1}, "empty file", "a map with "+strings.Join(topKeys, ", "))
		return nil
	case 1:
		if root = r.resolve(docs[0].Body); r.stop {
			return nil
		}
		return root
	}
	r.wrong(at(docs[1].Body), "second document", "one document in a file")
	return nil
}

func (r *reader) syntax(err error) {
	p := place{1, 1}
	what, allowed := "not YAML", ""
	var e yaml.Error
	if errors.As(err, &e) {
		what, _, _ = strings.Cut("not YAML: "+e.GetMessage(), "\n")
		if tk := e.GetToken(); tk != nil && tk.Position != nil {
			p = place{tk.Position.Line, tk.Position.Column}
		}
	}
	if strings.Contains(what, "'\t'") { // which would be shown as a space
		what, allowed = "not YAML: a tab where a line is indented", "spaces there"
	}
	r.wrong(p, what, allowed)
}

// kind names a node's type as a person would.
func kind(n ast.Node) string {
	switch n := n.(type) {
	case nil, *ast.NullNode:
		return "nothing"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a map"
	case *ast.SequenceNode:
		return "a list"
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "the number " + short(n.GetToken().Value)
	case *ast.BoolNode:
		return n.GetToken().Value
	case *ast.StringNode:
		return fmt.Sprintf("%q", short(n.Value))
	case *ast.LiteralNode:
		return "a text block"
	case *ast.AnchorNode:
		return "an anchor"
	case *ast.AliasNode, *ast.MergeKeyNode:
		return "an alias"
	case *ast.TagNode:
		return "a tag"
	}
	return "something else"
}

// short keeps a message in one line.
func short(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > 60 {
		return strings.ToValidUTF8(s[:60], "") + "…"
	}
	return s
}

// pairs gives a map's entries, in the file's order; false when n is no map.
func pairs(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	}
	return nil, false
}
