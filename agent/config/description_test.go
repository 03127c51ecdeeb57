package config

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"godwit/migration"
)

const wholeDescription = `# taken from production
name: web
memory: 256MiB
nics:
  - {mac: "52:54:00:00:01:0a", tap: tap-web-a}
  - {mac: "52:54:00:00:01:0b", tap: tap-web-b}
qmp: /run/web/qmp.sock
addresses:
  - {prefix: 10.1.1.20/24, gateway: 10.1.1.1}
start: [qemu-system-x86_64, -S]
network: tunnel
`

func TestLoadDescription(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(wholeDescription)
	d, err := LoadDescription(path)
	if err != nil || d.Check() != nil || d.CheckAdopted() != nil {
		t.Fatal(err, d.Check(), d.CheckAdopted())
	}
	if d.Memory != 256<<20 || d.NICs[1].Tap != "tap-web-b" || d.Addresses[0].Prefix != netip.MustParsePrefix("10.1.1.20/24") ||
		!slices.Equal(d.Start, []string{"qemu-system-x86_64", "-S"}) || d.Network != "tunnel" {
		t.Errorf("%+v", d)
	}
	for _, c := range []struct{ name, old, new, want string }{
		{"plain bytes", "256MiB", "268435456", ""},
		{"quoted", "256MiB", `"0.25GiB"`, ""},
		{"no such unit", "256MiB", "256QB", `:3:9: memory "256QB": unknown unit; allowed: a plain number, or a size with its unit`},
		{"unknown key", "qmp:", "qpm:", ":7:1: unknown field \"qpm\""},
		{"unknown key of a NIC", "tap: tap-web-b", "tab: tap-web-b", ":6:32: unknown field"},
		{"a list for a word", "/run/web/qmp.sock", "[a, b]", ":7:6: "},
		{"an address that is none", "10.1.1.20/24", "10.1.1.20", ":9:14: "},
		{"not yaml", "start: [", "start: [[", ":11:1: "},
		{"twice", "network: tunnel", "name: web", ":11:1: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !strings.Contains(wholeDescription, c.old) {
				t.Fatal("no such text")
			}
			write(strings.Replace(wholeDescription, c.old, c.new, 1))
			d, err := LoadDescription(path)
			if c.want == "" {
				if err != nil || d.Memory != 256<<20 {
					t.Errorf("%d, %v", d.Memory, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), path+c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v: want one line with %q", err, path+c.want)
			}
		})
	}
}

func TestDescriptionOfWhatIsStartedOrAdopted(t *testing.T) {
	taps := func(taps ...string) Description {
		d := Description{Name: "web", QMP: "/q"}
		for _, tap := range taps {
			d.NICs = append(d.NICs, NIC{MAC: "52:54:00:00:00:0a", Tap: tap})
		}
		return d
	}
	refusalOf(t, taps("a", "").CheckAdopted(), "nics[1]", "name the tap")
	refusalOf(t, taps("a", "a").CheckAdopted(), "both NICs have the tap a")
	for _, name := range []string{"sixteen-letters-", "a b", "a/b", "a:b", "a,b", "a=b", `a"b`} {
		refusalOf(t, taps(name).CheckAdopted(), "not the name of a device")
	}
	refusalOf(t, Description{Name: "web", QMP: "/q", Image: "tiny"}.CheckAdopted(), "drop them, or qmp")
	refusalOf(t, Description{Name: "web", Image: "huge"}.CheckStarted([]string{TinyImage}), `image "huge" is unknown; allowed: tiny`)
	refusalOf(t, Description{Name: "web", Start: []string{"qemu"}}.CheckStarted(nil), "qmp is missing")
	for _, d := range []Description{{Name: "web"}, {Name: "web", Image: "tiny"}} {
		if err := d.CheckStarted(nil); err != nil {
			t.Error(err)
		}
	}
}

func TestElsewhereLeavesTheOriginalAlone(t *testing.T) {
	d := Description{Name: "web", QMP: "/q", Channel: "/c", NICs: []NIC{{MAC: "m", Tap: "t"}}, Start: []string{"x"}}
	far := d.Elsewhere()
	if far.QMP != "" || far.Channel != "" || far.NICs[0] != (NIC{MAC: "m"}) || len(far.Start) != 1 {
		t.Errorf("%+v", far)
	}
	if d.QMP != "/q" || d.NICs[0].Tap != "t" {
		t.Errorf("the original changed: %+v", d)
	}
}

// TestImages: a host starts guests of the images that it has.
func TestImages(t *testing.T) {
	c := Config{Image: Image{Kernel: "k"}, Images: map[string]Image{"debian12": {Kernel: "k12", Root: "r"}}}
	if c.ImageOf("").Kernel != "k" || c.ImageOf("tiny").Kernel != "k" || c.ImageOf("debian12").Root != "r" || c.ImageOf("huge").Kernel != "" {
		t.Errorf("images: %+v", c)
	}
	if got := strings.Join(c.ImageNames(), " "); got != "tiny debian12" {
		t.Errorf("names: %s", got)
	}
	if err := (Description{Name: "web", Image: "debian12"}).CheckStarted(c.ImageNames()); err != nil {
		t.Error(err)
	}
}

func TestDescriptionCheck(t *testing.T) {
	mac := func(macs ...string) []NIC {
		var out []NIC
		for _, m := range macs {
			out = append(out, NIC{MAC: m})
		}
		return out
	}
	const a, b = "52:54:00:00:00:0a", "52:54:00:00:00:0b"
	for _, d := range []Description{
		{Name: "web", Memory: 16 << 20, NICs: mac(a)},
		{Name: "web-1.example", Memory: 1 << 30, NICs: mac(a, b)},
		{Name: strings.Repeat("w", 64), Memory: 1 << 30, VCPUs: 255, NICs: mac(a, b), Network: "tunnel", QMP: "/run/web/qmp", Channel: "/run/web/guest"},
	} {
		if err := d.Check(); err != nil {
			t.Errorf("%+v: %v", d, err)
		}
	}
	for _, c := range []struct {
		d    Description
		want string
	}{
		{Description{Memory: 1 << 30, NICs: mac(a)}, "one word"},
		{Description{Name: "a b", Memory: 1 << 30, NICs: mac(a)}, "one word"},
		{Description{Name: "../a", Memory: 1 << 30, NICs: mac(a)}, "one word"},
		{Description{Name: "a..b", Memory: 1 << 30, NICs: mac(a)}, "'..'"},
		{Description{Name: "-a", Memory: 1 << 30, NICs: mac(a)}, "letter or digit"},
		{Description{Name: "web%d%s", Memory: 1 << 30, NICs: mac(a)}, "one word"},
		{Description{Name: "web\n", Memory: 1 << 30, NICs: mac(a)}, "one word"},
		{Description{Name: strings.Repeat("w", 65), Memory: 1 << 30, NICs: mac(a)}, "up to 64"},
		{Description{Name: "web", Memory: 1 << 30, VCPUs: -1, NICs: mac(a)}, "vcpus -1; 1 to 255"},
		{Description{Name: "web", Memory: 1 << 30, VCPUs: 256, NICs: mac(a)}, "vcpus 256; 1 to 255"},
		{Description{Name: "web", Memory: 1 << 30, NICs: mac(a, "02:00:5e:10:00:00:00:01")}, "is not one"},
		{Description{Name: "web", Memory: 1 << 30, NICs: mac(b, strings.ToUpper(b))}, "both NICs have the MAC"},
		{Description{Name: "web", Memory: 1 << 30, NICs: mac(a), QMP: "qmp.sock"}, `qmp "qmp.sock": not the absolute path`},
		{Description{Name: "web", Memory: 1 << 30, NICs: mac(a), Channel: "/" + strings.Repeat("c", 107)}, "at most 107 bytes"},
		{Description{Name: "web", Memory: 1 << 30, NICs: mac(a), Network: "bridge"}, `network "bridge" is unknown; allowed: auto, mptcp`},
		{Description{Name: "web", Memory: 1 << 30, NICs: mac(a), Addresses: []migration.Address{{}}}, "lacks its prefix"},
		{Description{Name: "web", Memory: 16<<20 - 1, NICs: mac(a)}, "memory of 16777215 bytes"},
		{Description{Name: "web", Memory: -1, NICs: mac(a)}, "memory of -1 bytes"},
		{Description{Name: "web", Memory: 1 << 30}, "0 NICs"},
		{Description{Name: "web", Memory: 1 << 30, NICs: mac(a, b, a)}, "3 NICs"},
		{Description{Name: "web", Memory: 1 << 30, NICs: mac(a, "")}, `MAC "" is not one`},
		{Description{Name: "web", Memory: 1 << 30, NICs: mac("52:54:00")}, `MAC "52:54:00" is not one`},
		{Description{Name: "web", Memory: 1 << 30, NICs: mac(a, "ff:ff:ff:ff:ff:ff")}, "MAC ff:ff:ff:ff:ff:ff is a group's"},
	} {
		refusalOf(t, c.d.Check(), fmt.Sprintf("guest %s: ", c.d.shown()), c.want)
	}
}

func refusalOf(t *testing.T, err error, words ...string) {
	t.Helper()
	var problem *migration.Problem
	if !errors.As(err, &problem) || problem.Code != migration.CodeUsage {
		t.Fatalf("%v: want a usage problem", err)
	}
	for _, w := range words {
		if !strings.Contains(problem.Text, w) {
			t.Errorf("%q: want %q in it", problem.Text, w)
		}
	}
	if strings.ContainsAny(problem.Text, "\n") || strings.Contains(problem.Text, "%!") {
		t.Errorf("%q: want one line of words", problem.Text)
	}
}
