package report

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"godwit/migration"
)

// leastContrast is what small text needs (WCAG 2.1, 1.4.3, level AA).
const leastContrast = 4.5

// colour3 is red, green and blue, 0 … 1.
type colour3 [3]float64

func parseColour(t *testing.T, text string) (c colour3) {
	t.Helper()
	digits := strings.TrimPrefix(text, "#")
	if len(digits) == 3 {
		digits = strings.Repeat(digits[:1], 2) + strings.Repeat(digits[1:2], 2) + strings.Repeat(digits[2:], 2)
	}
	for i := range c {
		n, err := strconv.ParseUint(digits[2*i:2*i+2], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		c[i] = float64(n) / 255
	}
	return c
}

// over is the colour with a part of it that shines through to another.
func (c colour3) over(below colour3, opacity float64) colour3 {
	for i := range c {
		c[i] = c[i]*opacity + below[i]*(1-opacity)
	}
	return c
}

// luminance as WCAG 2.1 defines it.
func (c colour3) luminance() float64 {
	for i, v := range c {
		if c[i] = v / 12.92; v > 0.03928 {
			c[i] = math.Pow((v+0.055)/1.055, 2.4)
		}
	}
	return 0.2126*c[0] + 0.7152*c[1] + 0.0722*c[2]
}

func contrast(a, b colour3) float64 {
	x, y := a.luminance(), b.luminance()
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

// TestContrast: what is written on the page can be read, by day and by night, on whatever it stands.
func TestContrast(t *testing.T) {
	day, night, ok := strings.Cut(pageStyle, "@media (prefers-color-scheme: dark)")
	if !ok {
		t.Fatal("there is no night")
	}
	colours := map[string]colour3{"white": {1, 1, 1}}
	for _, scheme := range []struct{ name, style string }{{"day", day}, {"night", night}} {
		for _, found := range regexp.MustCompile(`--([a-z0-9-]+): (#[0-9a-f]{6}|#[0-9a-f]{3});`).FindAllStringSubmatch(scheme.style, -1) {
			colours[found[1]] = parseColour(t, found[2])
		}
		reads := func(text, on string, opacity float64) {
			if got := contrast(colours[text], colours[on].over(colours["bg"], opacity)); got < leastContrast {
				t.Errorf("by %s %s on %s has a contrast of %.2f", scheme.name, text, on, got)
			}
		}
		for _, on := range []string{"bg", "card"} {
			for _, text := range []string{"fg", "mute", "good", "bad", "step"} {
				reads(text, on, 1)
			}
		}
		reads("bad", "bad-bg", 1)
		for i := range 8 {
			reads("fg", fmt.Sprint("s", i), 1)
			reads("on-flow", fmt.Sprint("f", i), 0.88) // svg .subflow
		}
		for i := range migration.Phases {
			reads("white", fmt.Sprint("p", i), 1)
		}
		for _, c := range codings {
			reads("on-bar", c.color, 1)
		}
	}
}
