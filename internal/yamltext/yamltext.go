// Package yamltext bounds a YAML file that a person wrote, before the parser, which is other people's, meets it: that
// calls itself for each level, and takes time by the square of how many keys or empty entries stand side by side.
package yamltext

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// Bounds on a file, so that what nobody means is refused before it costs.
const (
	MaxFile = 1 << 20 // bytes: nothing needs more than that to be read
	MaxList = 4096    // entries of any one list, or map
	maxDeep = 32      // brackets, or dashes in one line, that are open at once
)

// Fault is why a file is not to be parsed.
type Fault struct {
	Line, Col int    // where, both from 1
	What      string // is wrong
	Allowed   string // instead
}

type place struct{ line, col int }

// Text is what the parser is to read of a file: all but the mark that some editors begin one with, each end of a line
// as YAML takes it (1.2.2, 5.4), and one at its end. The parser counts a CRLF after a comment twice, and in quotes as a
// space and a line; a last tab it takes for an entry, and without a last newline it may not fold the last line of a
// text. ok is false where something keeps it from the parser.
func Text(data []byte) (text []byte, f Fault, ok bool) {
	if len(data) > MaxFile {
		return nil, Fault{1, 1, "the file is too long", fmt.Sprintf("at most %d bytes", MaxFile)}, false
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	data = bytes.ReplaceAll(data, []byte("\r"), []byte("\n"))
	data = append(bytes.TrimRight(data, " \t\n"), '\n')
	f, ok = check(data)
	return data, f, ok
}

func check(data []byte) (f Fault, ok bool) {
	wrong := func(p place, what, allowed string) (Fault, bool) { return Fault{p.line, p.col, what, allowed}, false }
	if p, bad := strange(data); bad {
		return wrong(p, "not text in UTF-8", "a file saved as UTF-8")
	}
	if p, deep := tooDeep(data); deep {
		return wrong(p, "nested too deeply", fmt.Sprintf("at most %d levels", maxDeep))
	}
	if p, wide := tooWide(data); wide {
		return wrong(p, "too many keys in one map", fmt.Sprintf("at most %d", MaxList))
	}
	if p, many := tooEmpty(data); many {
		return wrong(p, "too many entries without a value", fmt.Sprintf("at most %d", MaxList))
	}
	return Fault{}, true
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

// tooDeep looks for nesting that no such file has, before the recursive parser
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

// tooWide looks for a map in lines that has more keys than any: the parser takes time by their square. Lines of a text
// with as many colons count, too: no sane command has them.
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
		if top.keys++; top.keys > MaxList {
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
		if entries++; entries > MaxList {
			return place{number, bytes.IndexByte(line, '-') + 1}, true
		}
	}
	return place{}, false
}
