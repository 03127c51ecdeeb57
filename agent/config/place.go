package config

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
)

// leadingKey is the key with which an error of check begins, such as uplinks[0] or network.mtu.
var leadingKey = regexp.MustCompile(`^[a-z0-9_]+(\[\d+\])?(\.[a-z0-9_]+(\[\d+\])?)*`)

// placeOf is `:LINE:COL` of what an error of check is about, by the key that it begins with; "" where the file has
// no such key, as it is one that is missing.
func placeOf(root ast.Node, err error) (place string) {
	defer func() { // the parser is other people's
		if recover() != nil {
			place = ""
		}
	}()
	key := leadingKey.FindString(err.Error())
	path, perr := yaml.PathString("$." + key)
	if key == "" || perr != nil {
		return ""
	}
	node, perr := path.FilterNode(root)
	if perr != nil || node == nil {
		return ""
	}
	tk := node.GetToken()
	if entry, ok := firstEntry(node); ok { // a mapping is where its first key is
		tk = entry.Key.GetToken()
	}
	if tk == nil || tk.Position == nil {
		return ""
	}
	return fmt.Sprintf(":%d:%d", tk.Position.Line, tk.Position.Column)
}

// firstEntry is that of a mapping.
func firstEntry(node ast.Node) (*ast.MappingValueNode, bool) {
	if m, ok := node.(*ast.MappingNode); ok && len(m.Values) > 0 {
		return m.Values[0], true
	}
	entry, ok := node.(*ast.MappingValueNode)
	return entry, ok
}

// ownText says what a value should be that a type of Go reads from its own text; "": no better word than that type's.
func ownText(what string) string {
	switch {
	case strings.HasPrefix(what, "time: "):
		return "not a time; give it a unit, such as 20s, 10m or 12h"
	case strings.HasPrefix(what, "netip.ParsePrefix("):
		return "not a subnet; such as 10.1.1.0/24"
	case strings.HasPrefix(what, "ParseAddr("):
		return "not an address; such as 192.0.2.10"
	}
	return ""
}
