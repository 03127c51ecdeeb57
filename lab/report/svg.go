package report

import (
	"bytes"
	"fmt"
	"html"
	"strconv"
	"strings"
)

// svg collects elements. Every text that comes from outside goes through label
// or hint, which escape it; classes and styles are the package's own words.
type svg struct{ bytes.Buffer }

// printf cannot fail: the buffer is memory.
func (s *svg) printf(format string, args ...any) { _, _ = fmt.Fprintf(s, format, args...) }

// px is a coordinate with at most one digit after the point.
func px(v float64) string {
	return strconv.FormatFloat(float64(int64(v*10+0.5))/10, 'f', -1, 64)
}

func (s *svg) rect(x, y, w, h float64, class, style, hint string) {
	s.printf(`<rect x="%s" y="%s" width="%s" height="%s"%s%s`, px(x), px(y), px(w), px(h), attr("class", class), attr("style", style))
	if hint == "" {
		s.WriteString("/>\n")
		return
	}
	s.printf("><title>%s</title></rect>\n", html.EscapeString(hint))
}

func (s *svg) line(x1, y1, x2, y2 float64, class string) {
	s.printf(`<line x1="%s" y1="%s" x2="%s" y2="%s"%s/>`+"\n", px(x1), px(y1), px(x2), px(y2), attr("class", class))
}

func (s *svg) path(d []byte, class, style string) {
	if len(d) > 0 {
		s.printf(`<path d="%s"%s%s/>`+"\n", d, attr("class", class), attr("style", style))
	}
}

func (s *svg) dot(x, y, r float64, style string) {
	s.printf(`<circle cx="%s" cy="%s" r="%s"%s/>`+"\n", px(x), px(y), px(r), attr("style", style))
}

// label writes text; class says where it is anchored: start, middle, end.
func (s *svg) label(x, y float64, class, text string) {
	s.printf(`<text x="%s" y="%s"%s>%s</text>`+"\n", px(x), px(y), attr("class", class), html.EscapeString(text))
}

// labelOf is label for a text with a name in it: where that was shortened, all of it is told at the pointer.
func (s *svg) labelOf(name string, x, y float64, class, text string) {
	if strings.Contains(text, name) {
		s.label(x, y, class, text)
		return
	}
	s.printf(`<text x="%s" y="%s"%s><title>%s</title>%s</text>`+"\n", px(x), px(y), attr("class", class), html.EscapeString(name), html.EscapeString(text))
}

// What has room left of the lanes, in characters: a name may have 40.
const (
	roomOfGuest = 18 // as a head
	roomOfName  = 21
	roomOfPath  = 15 // before a size
	roomOfProbe = 15 // beside the lane's numbers
	roomOfMark  = 70 // less than half of the picture
)

// shorten cuts a name to n characters.
func shorten(s string, n int) string {
	runes := []rune(s)
	if len(runes) <= n {
		return s
	}
	return string(runes[:n-1]) + "…"
}

func attr(name, value string) string {
	if value == "" {
		return ""
	}
	return fmt.Sprintf(` %s="%s"`, name, html.EscapeString(value))
}

// textWidth is about how wide the page's 11 px text is.
func textWidth(s string) float64 {
	n := 0
	for range s {
		n++
	}
	return 6.1 * float64(n)
}

// pathVar is the page's variable for the i-th path's colour.
func pathVar(i int) string { return fmt.Sprintf("w%d", i%8) }

// colour names the page's variable for the i-th flow, path or site.
func colour(sort string, i int) string { return fmt.Sprintf("var(--%s%d)", sort, i%8) }
