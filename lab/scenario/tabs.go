package scenario

import (
	"regexp"
	"strings"

	"github.com/goccy/go-yaml/token"
)

// tabs mends what the scanner makes of tabs within a line. It drops them from plain words, which would be others then
// (`a<tab>b` is not `ab`): they have them again. After a text in double quotes that has one it reads on in the wrong
// place: that is reported, and the rest of the tokens is worth nothing.
func (r *reader) tabs(tokens token.Tokens) (ok bool) {
	var block bool // the token before begins a text in lines of its own, whose tabs are kept
	for _, t := range tokens {
		switch t.Type {
		case token.CommentType, token.SpaceType:
			continue
		case token.DoubleQuoteType:
			if strays(t.Origin) {
				r.wrong(place{t.Position.Line, t.Position.Column}, "a tab in a text in double quotes", `\t in its place, or single quotes`)
				return false
			}
		case token.SingleQuoteType:
		default:
			if !block {
				untab(t)
			}
		}
		block = t.Type == token.LiteralType || t.Type == token.FoldedType
	}
	return true
}

// tabWithin is a tab of a text in double quotes that is not escaped, and neither begins nor ends a line, nor ends the text.
var tabWithin = regexp.MustCompile(`[^\\]\t[^"]`)

// strays says whether the scanner reads on in the wrong place after a text in double quotes: characters too far, one
// for each of these tabs.
func strays(origin string) bool {
	for line := range strings.SplitSeq(strings.TrimSpace(origin), "\n") {
		if tabWithin.MatchString(strings.TrimSpace(line)) {
			return true
		}
	}
	return false
}

// untab gives a plain word the tabs that it has in the file. With one it is neither number nor truth value.
func untab(t *token.Token) {
	if t.CharacterType != token.CharacterTypeMiscellaneous || !strings.Contains(strings.TrimSpace(t.Origin), "\t") {
		return
	}
	var word strings.Builder
	joint := "" // before a line that goes on: a space, or the empty lines between
	for line := range strings.SplitSeq(strings.TrimSpace(t.Origin), "\n") {
		if line = strings.TrimSpace(line); line == "" {
			joint = strings.TrimPrefix(joint, " ") + "\n"
			continue
		}
		word.WriteString(joint + line)
		joint = " "
	}
	if strings.Contains(word.String(), "\t") {
		t.Type, t.Value = token.StringType, word.String()
	}
}
