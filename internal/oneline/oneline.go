// Package oneline has what lines for people are made of: text that another host, or a guest, wrote, made fit to be shown,
// and counts in words.
package oneline

import (
	"fmt"
	"strings"
	"unicode"
)

// longest bounds what is kept of a line, bytes.
const longest = 2000

// Of is somebody else's text as it may be shown: one line, not too long, without anything
// that a terminal would act upon.
func Of(text string) string {
	if len(text) > longest {
		text = text[:longest] + " …"
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
}

// Many is how many of a thing there are, in words: "1 guest", "2 guests".
func Many(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
