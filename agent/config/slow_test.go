package config

import (
	"slices"
	"strings"
	"testing"
)

// TestSlowUplinks: a rate that nobody's uplink has is told with what was meant, of this host's and of others'.
func TestSlowUplinks(t *testing.T) {
	for rate, slow := range map[string]bool{"200": true, "63999": true, "64kbit": false, "64000": false, "350mbit": false, "0": false} {
		c, _, err := load(t, strings.Replace(wholeConfig, "rate: 350000000", "rate: "+rate, 1))
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Slow(); slow != (len(got) == 1) {
			t.Errorf("%s: %q", rate, got)
		}
	}
	c := &Config{
		Uplinks: []Uplink{{Name: "public"}, {Name: "mobile", Rate: 200}},
		Peers:   []Neighbour{{Host: "rome", Uplinks: []Uplink{{Name: "public", Rate: 1}}}},
	}
	want := []string{
		"uplinks[1] mobile: rate of 200 bit/s; a number without a unit is bit/s, write rate: 200mbit for 200 Mbit/s",
		"peers[0] rome: uplinks[0] public: rate of 1 bit/s; a number without a unit is bit/s, write rate: 1mbit for 1 Mbit/s",
	}
	if got := c.Slow(); !slices.Equal(got, want) {
		t.Errorf("%q\nwant\n%q", got, want)
	}
}
