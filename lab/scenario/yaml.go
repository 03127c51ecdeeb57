package scenario

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"godwit/internal/oneline"
)

// Bounds on a file, so that what is not a scenario is refused before it costs.
const (
	MaxFile = 1 << 20 // of a scenario file, bytes: nothing needs more than that to be read
	maxDeep = 32      // brackets, or dashes in one line, that are open at once
	maxList = 4096    // entries of any one list, or map
)

// reader collects what is wrong while the tree is walked.
type reader struct {
	file     string
	found    []finding
	anchors  map[string]ast.Node
	weights  map[ast.Node]int // see weigh
	repeated int              // nodes that aliases stand for
	stop     bool             // the tree has a hole, or is too large, and is not read
}

// place is where a node stands in the file.
type place struct{ line, col int }

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
	data = bytes.TrimPrefix(data, []byte("\ufeff")) // some editors begin a file with it
	data = bytes.TrimRight(data, " \t\r\n")         // the parser takes a last tab for an entry
	if len(data) > MaxFile {
		r.wrong(place{1, 1}, "the file is too long", fmt.Sprintf("at most %d bytes", MaxFile))
		return nil
	}
	if p, bad := strange(data); bad {
		r.wrong(p, "not text in UTF-8", "a file saved as UTF-8")
		return nil
	}
	if p, deep := tooDeep(data); deep {
		r.wrong(p, "nested too deeply", fmt.Sprintf("at most %d levels", maxDeep))
		return nil
	}
	if p, wide := tooWide(data); wide {
		r.wrong(p, "too many keys in one map", fmt.Sprintf("at most %d", maxList))
		return nil
	}
	if p, many := tooEmpty(data); many {
		r.wrong(p, "too many entries without a value", fmt.Sprintf("at most %d", maxList))
		return nil
	}
	// The parser is other people's and is known to panic on odd bytes.
	defer func() {
		if e := recover(); e != nil {
			root = nil
			r.wrong(place{1, 1}, "not YAML", "")
		}
	}()
	tokens := lexer.Tokenize(string(data))
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

// strange finds the first byte that is no UTF-8: what is read of such a file would not be what report.json says.
func strange(data []byte) (at place, bad bool) {
	if utf8.Valid(data) {
		return place{}, false
	}
	at = place{1, 1}
	for {
		c, n := utf8.DecodeRune(data)
		switch {
		case c == utf8.RuneError && n <= 1:
			return at, true
		case c == '\n':
			at = place{at.line + 1, 0}
		}
		at.col++
		data = data[n:]
	}
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

// tooDeep looks for nesting that no scenario has, before the recursive parser
// sees it. Brackets in strings count too: no sane command has so many open.
func tooDeep(data []byte) (place, bool) {
	open, dashes := 0, 0
	p := place{1, 0}
	for i, c := range data {
		p.col++
		switch c {
		case '\n':
			p = place{p.line + 1, 0}
			dashes = 0
		case '[', '{':
			open++
		case ']', '}':
			open = max(0, open-1)
		case '-', '?', ':':
			if i+1 < len(data) && data[i+1] > ' ' { // a ruler of dashes, or a word
				dashes = 0
				continue
			}
			dashes++
		case ' ', '\t':
		default:
			dashes = 0
		}
		if open > maxDeep || dashes > maxDeep {
			return p, true
		}
	}
	return p, false
}

// tooWide looks for a map in lines that has more keys than any: the parser takes time by their square. Lines of a text with as
// many colons count, too: no sane command has them.
func tooWide(data []byte) (place, bool) {
	type level struct{ col, keys int }
	var open []level
	number := 0
	for line := range bytes.Lines(data) {
		number++
		text := bytes.TrimLeft(line, " ")
		col := len(line) - len(text)
		if text = bytes.TrimSpace(text); len(text) == 0 || text[0] == '#' {
			continue
		}
		for len(open) > 0 && open[len(open)-1].col > col {
			open = open[:len(open)-1]
		}
		for len(text) > 1 && text[0] == '-' && text[1] == ' ' { // an entry, whose map begins with it
			rest := bytes.TrimLeft(text[1:], " ")
			text, col = rest, col+len(text)-len(rest)
			for len(open) > 0 && open[len(open)-1].col >= col {
				open = open[:len(open)-1]
			}
		}
		if text[0] != '?' && !bytes.ContainsRune(text, ':') {
			continue
		}
		if len(open) == 0 || open[len(open)-1].col < col {
			open = append(open, level{col, 0})
		}
		top := &open[len(open)-1]
		if top.keys++; top.keys > maxList {
			return place{number, col + 1}, true
		}
	}
	return place{}, false
}

// tooEmpty looks for more entries of lists without a value than any list has: the parser takes time by their square, too.
func tooEmpty(data []byte) (place, bool) {
	number, entries := 0, 0
	for line := range bytes.Lines(data) {
		number++
		if string(bytes.TrimSpace(line)) != "-" {
			continue
		}
		if entries++; entries > maxList {
			return place{number, bytes.IndexByte(line, '-') + 1}, true
		}
	}
	return place{}, false
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
