package scenario

import (
	"fmt"

	"github.com/goccy/go-yaml/ast"
)

// maxRepeated is how many nodes all aliases of a file may stand for, those within them too: what is shared is read as
// often as it is named.
const maxRepeated = 1 << 17

// resolve puts in the place of every alias what its anchor names, and of every merge
// key (`<<`) the entries that its map lacks. What an anchor names is shared and not
// copied, so a file that repeats a lot takes no more room than its own length. It returns
// the node to use in the place of n.
func (r *reader) resolve(n ast.Node) ast.Node {
	if r.repeated > maxRepeated { // that was said
		return n
	}
	switch n := n.(type) {
	case *ast.AnchorNode:
		value := r.resolve(n.Value)
		if r.anchors == nil {
			r.anchors = map[string]ast.Node{}
		}
		r.anchors[n.Name.GetToken().Value] = value // known from here on: none contains itself
		return value
	case *ast.AliasNode:
		name := n.Value.GetToken().Value
		value, known := r.anchors[name]
		if !known {
			r.wrong(at(n), fmt.Sprintf("alias *%s has no anchor before it", short(name)), "an anchor &"+short(name)+" further up")
			r.stop = true // what it stands for is not known: any word on it would be a guess
		}
		if r.repeated += r.weigh(value); r.repeated > maxRepeated {
			r.wrong(at(n), "the aliases up to here stand for too much", fmt.Sprintf("lists and maps that have %d entries together at most, as often as they are named", maxRepeated))
			r.stop = true
		}
		return value
	case *ast.SequenceNode:
		for i, v := range n.Values {
			n.Values[i] = r.resolve(v)
		}
	case *ast.TagNode:
		n.Value = r.resolve(n.Value)
		return untagged(n)
	case *ast.MappingValueNode:
		n.Key, n.Value = plainKey(n.Key), r.resolve(n.Value)
		if _, merge := n.Key.(*ast.MergeKeyNode); merge {
			return r.merged(n.Value, n)
		}
	case *ast.MappingNode:
		r.resolveMap(n)
	}
	return n
}

// weigh counts the nodes of a tree whose aliases are resolved.
func (r *reader) weigh(n ast.Node) (sum int) {
	if w, known := r.weights[n]; known {
		return w
	}
	switch n := n.(type) {
	case *ast.SequenceNode:
		for _, v := range n.Values {
			sum += r.weigh(v)
		}
	case *ast.MappingNode:
		for _, v := range n.Values {
			sum += r.weigh(v.Value)
		}
	case *ast.MappingValueNode:
		sum = r.weigh(n.Value)
	default:
		return 1
	}
	if r.weights == nil {
		r.weights = map[ast.Node]int{}
	}
	sum = min(sum+1, maxRepeated+1)
	r.weights[n] = sum
	return sum
}

// resolveMap resolves a map's values and merges what it asks for.
func (r *reader) resolveMap(n *ast.MappingNode) {
	var own, merged []*ast.MappingValueNode
	var from *ast.MappingValueNode // the merge key
	has := map[string]bool{}
	for _, e := range n.Values {
		e.Key, e.Value = plainKey(e.Key), r.resolve(e.Value)
		_, merge := e.Key.(*ast.MergeKeyNode)
		switch {
		case !merge:
			own, has[e.Key.GetToken().Value] = append(own, e), true
		case from != nil:
			r.wrong(at(e), fmt.Sprintf("key << again (first in line %d)", at(from).line), "each key once")
		default:
			from = e
			merged, _ = pairs(r.merged(e.Value, e))
		}
	}
	for _, e := range merged {
		if !has[e.Key.GetToken().Value] {
			own = append(own, e)
		}
	}
	n.Values = own
}

// merged is the map that a merge key brings, or those of a list that it brings, of which the first that has a key counts;
// one that brings none is reported.
func (r *reader) merged(value ast.Node, key *ast.MappingValueNode) ast.Node {
	if list, isList := value.(*ast.SequenceNode); isList {
		value = together(list, key)
	}
	if _, isMap := pairs(value); !isMap && value != nil && r.repeated <= maxRepeated {
		r.wrong(at(key), "<< brings "+kind(value), "<<: *NAME of a map, or <<: [*ONE, *OTHER] of maps")
	}
	return value
}

// together is a map of the entries of all maps in a list, each key once; or what of the list is no map.
func together(list *ast.SequenceNode, key *ast.MappingValueNode) ast.Node {
	all := ast.Mapping(key.Key.GetToken(), true)
	has := map[string]bool{}
	for _, v := range list.Values {
		entries, isMap := pairs(v)
		if !isMap {
			return v
		}
		for _, e := range entries {
			if name := e.Key.GetToken().Value; !has[name] {
				all.Values, has[name] = append(all.Values, e), true
			}
		}
	}
	return all
}

// plainKey is a key without the question mark that may stand before it.
func plainKey(key ast.MapKeyNode) ast.MapKeyNode {
	if explicit, ok := key.(*ast.MappingKeyNode); ok {
		if text, ok := explicit.Value.(*ast.StringNode); ok {
			return text
		}
	}
	return key
}

// untagged is what one of YAML's own tags stands before, where it says what that is anyway, or asks for text. Another
// tag stays.
func untagged(n *ast.TagNode) ast.Node {
	same := false
	switch tag := n.Start.Value; v := n.Value.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		same = tag == "!!map"
	case *ast.SequenceNode:
		same = tag == "!!seq"
	case *ast.StringNode, *ast.LiteralNode:
		same = tag == "!!str"
	case *ast.BoolNode, *ast.IntegerNode, *ast.FloatNode:
		if tag == "!!str" {
			return ast.String(v.GetToken())
		}
		_, whole := v.(*ast.IntegerNode)
		_, truth := v.(*ast.BoolNode)
		same = tag == "!!bool" && truth || tag == "!!int" && whole || tag == "!!float" && !truth
	}
	if same {
		return n.Value
	}
	return n
}
