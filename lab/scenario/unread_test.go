package scenario

import (
	"errors"
	"strings"
	"testing"
)

// TestReferencesToWhatCannotBeRead: of a name that may be that of something which cannot be read nothing is said: once
// that is mended, it is known.
func TestReferencesToWhatCannotBeRead(t *testing.T) {
	const whole = `name: w
sites:
  - {name: a, guest_net: {v4: 10.1.1.0/24, v6: "fd00:1::/64"}, uplinks: [{name: p}]}
  - {name: b, guest_net: {v4: 10.2.1.0/24}, uplinks: [{name: p}]}
clients:
  - {name: c, at: a}
guests:
  - {name: g, site: a}
traffic:
  - {name: t, client: c, guest: g, kind: ticks, family: v4}
steps:
  - {at: 2s, migrate: {guest: g, to: b}}
  - {at: 3s, cut: {site: a, uplink: p, for: 1s}}
  - {at: 3s, move: {client: c, to: b}}
expect:
  - {service_gap: {traffic: t, below: 1s}}
  - {vm_downtime: {below: 1s}}
`
	if _, err := Parse("f", []byte(whole)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		put  [][2]string
		want []string // what is wrong; each error begins so
	}{
		"no sites":                              {[][2]string{{"sites:\n", "sites: 5\nxx:\n"}}, []string{"sites of the scenario is", `unknown key "xx"`}},
		"an empty list of sites":                {[][2]string{{"sites:\n", "sites: []\nxx:\n"}}, []string{"the scenario has no sites", `unknown key "xx"`}},
		"how many hosts":                        {[][2]string{{"name: a,", "name: a, hosts: two,"}, {"site: a}", "site: a-1}"}}, []string{"hosts of site a is"}},
		"sites are missing":                     {[][2]string{{"sites:\n", "xx:\n"}}, []string{`unknown key "xx"`}},
		"sites are misspelt":                    {[][2]string{{"sites:\n", "stes:\n"}}, []string{`unknown key "stes" in the scenario`}},
		"clients are misspelt":                  {[][2]string{{"clients:\n", "clints:\n"}}, []string{`unknown key "clints" in the scenario`}},
		"guests are called another thing":       {[][2]string{{"guests:\n", "machines:\n"}}, []string{`unknown key "machines" in the scenario`}},
		"a site's name is misspelt":             {[][2]string{{"name: a,", "nmae: a,"}}, []string{`unknown key "nmae" in site`}},
		"a site is called by its title":         {[][2]string{{"name: a,", "title: a,"}}, []string{`unknown key "title" in site`}},
		"a guest's site is misspelt":            {[][2]string{{"{name: g, site: a}", "{name: g, siet: a}"}}, []string{`unknown key "siet" in guest g`}},
		"a flow's client is misspelt":           {[][2]string{{"{name: t, client: c", "{name: t, clinet: c"}}, []string{`unknown key "clinet" in traffic t`}},
		"a step's time is misspelt":             {[][2]string{{"{at: 2s, migrate:", "{att: 2s, migrate:"}}, []string{`unknown key "att" in step`}},
		"a step's act is misspelt":              {[][2]string{{"migrate: {guest", "migrat: {guest"}}, []string{`unknown key "migrat" in step`}},
		"a step's act is another":               {[][2]string{{"migrate: {guest", "transport: {guest"}}, []string{`unknown key "transport" in step`}},
		"what a step moves is misspelt":         {[][2]string{{"{guest: g, to: b}", "{gest: g, to: b}"}}, []string{`unknown key "gest" in migrate`}},
		"an expectation is misspelt":            {[][2]string{{"vm_downtime:", "vm_downtme:"}}, []string{`unknown key "vm_downtme" in expectation`}},
		"what is expected is misspelt":          {[][2]string{{"{traffic: t, below: 1s}", "{trafic: t, below: 1s}"}}, []string{`unknown key "trafic" in service_gap`}},
		"misspelt, and what stands there":       {[][2]string{{"{at: 2s, migrate: {guest: g, to: b}}", "at: 2s\n    migrat:\n      gest: g\n      to: b"}}, []string{`unknown key "migrat"`, `unknown key "gest" in migrate`}},
		"misspelt, and something below it":      {[][2]string{{"{at: 2s, migrate: {guest: g, to: b}}", "at: 2s\n    migrat:\n      guest: h\n      to: b"}}, []string{`unknown key "migrat"`, `unknown guest "h"`}},
		"misspelt, and a thing is missing":      {[][2]string{{"{at: 2s, migrate: {guest: g, to: b}}", "at: 2s\n    migrat:\n      to: b"}}, []string{`unknown key "migrat"`, "migrate has no guest"}},
		"misspelt subnets, one of them twice":   {[][2]string{{"  - {name: b, guest_net: {v4: 10.2.1.0/24},", "  - name: b\n    guest_nt:\n      v44: 10.2.1.0/24\n    uplinks: [{name: p}]\n  - {name: d, guest_net: {v4: 10.3.1.0/24},"}}, []string{`unknown key "guest_nt"`, `unknown key "v44"`}},
		"a misspelt list, and its first entry":  {[][2]string{{"clients:\n  - {name: c, at: a}", "clints:\n  - nme: c\n    at: a"}}, []string{`unknown key "clints"`, `unknown key "nme" in client`}},
		"misspelt, and no map":                  {[][2]string{{"migrate: {guest: g, to: b}", "migrat: g"}}, []string{`unknown key "migrat"`}},
		"misspelt, and no list":                 {[][2]string{{"clients:\n  - {name: c, at: a}", "clints: c"}}, []string{`unknown key "clints"`}},
		"misspelt, and nothing":                 {[][2]string{{"migrate: {guest: g, to: b}", "migrat: "}}, []string{`unknown key "migrat"`}},
		"misspelt, and a map":                   {[][2]string{{"{name: g, site: a}", "{name: g, siet: {a: b}}"}}, []string{`unknown key "siet" in guest g`}},
		"near to what it is not":                {[][2]string{{"{name: p}", "{name: p, ratio: 3}"}}, []string{`unknown key "ratio"`, `unknown key "ratio"`}},
		"near to what is there":                 {[][2]string{{"{name: g, site: a}", "{name: g, site: a, siet: b}"}}, []string{`unknown key "siet" in guest g`}},
		"misspelt, and an empty map":            {[][2]string{{"guest_net: {v4: 10.2.1.0/24}", "guest_nt: {}"}}, []string{`unknown key "guest_nt"`, "guest_net of site b has neither"}},
		"misspelt, and no subnets":              {[][2]string{{`guest_net: {v4: 10.1.1.0/24, v6: "fd00:1::/64"}`, "guest_nt: 10.1.1.0/24"}}, []string{`unknown key "guest_nt"`}},
		"misspelt, and too many":                {[][2]string{{"name: a,", "name: a, hots: two,"}, {"site: a}", "site: a-2}"}}, []string{`unknown key "hots"`}},
		"misspelt, and another is missing":      {[][2]string{{"{name: t, client: c, guest: g,", "{name: t, clinet: c,"}}, []string{"traffic t has no guest", `unknown key "clinet"`}},
		"unknown, and two are missing":          {[][2]string{{"{name: t, client: c, guest: g,", "{name: t, xx: c,"}}, []string{"traffic t has no client", "traffic t has no guest", `unknown key "xx"`}},
		"a subnet called another thing":         {[][2]string{{"v4: 10.2.1.0/24", "subnet: 10.2.1.0/24"}}, []string{`unknown key "subnet" in guest_net`}},
		"hosts called another thing":            {[][2]string{{"name: a,", "name: a, nodes: 2, subnet_agent: a-2,"}, {"site: a}", "site: a-1}"}}, []string{`unknown key "nodes" in site a`}},
		"memory called another thing":           {[][2]string{{"site: a}", "site: a, ram: 1GiB, run: [dirty size=600MiB]}"}}, []string{`unknown key "ram" in guest g`}},
		"a disk called another thing":           {[][2]string{{"site: a}", "site: a, storage: 1GiB, run: [disk write=1MiB]}"}}, []string{`unknown key "storage" in guest g`}},
		"an image called another thing":         {[][2]string{{"site: a}", "site: a, os: debian12, agent: qga}"}}, []string{`unknown key "os" in guest g`}},
		"a command called another thing":        {[][2]string{{"kind: ticks", "kind: exec, run: ls"}, {"service_gap: {traffic: t, below: 1s}", "leftovers: none"}}, []string{`unknown key "run" in traffic t`}},
		"a mode called another thing":           {[][2]string{{"g, to: b}", "g, to: b, how: precopy, throttle: 50%}"}}, []string{`unknown key "how" in migrate`}},
		"a transfer called another thing":       {[][2]string{{"g, to: b}", "g, to: b, via: qemu-tcp, insecure_transfer: true}"}}, []string{`unknown key "via" in migrate`}},
		"an uplink called another thing":        {[][2]string{{"uplink: p", "interface: p"}}, []string{`unknown key "interface" in cut`}},
		"a rate called another thing":           {[][2]string{{"cut: {site: a, uplink: p,", "degrade: {site: a, uplink: p, bandwidth: 5mbit,"}}, []string{`unknown key "bandwidth" in degrade`}},
		"what is killed called another thing":   {[][2]string{{"cut: {site: a, uplink: p, for: 1s}", "kill: {daemon: a}"}}, []string{`unknown key "daemon" in kill`}},
		"a site that is no map":                 {[][2]string{{"  - {name: b, guest_net: {v4: 10.2.1.0/24}, uplinks: [{name: p}]}", "  - b"}}, []string{"site is"}},
		"a site's name":                         {[][2]string{{"name: a,", `name: "a a",`}, {"site: a", `site: "a a"`}, {"at: a", `at: "a a"`}}, []string{"name"}},
		"a subnet":                              {[][2]string{{"v4: 10.1.1.0/24", "v4: 10.1.1.0"}}, []string{"v4 of guest_net"}},
		"uplinks":                               {[][2]string{{"\"fd00:1::/64\"}, uplinks: [{name: p}]", "\"fd00:1::/64\"}, uplinks: {name: p}"}}, []string{"uplinks of site a is"}},
		"an uplink":                             {[][2]string{{"\"fd00:1::/64\"}, uplinks: [{name: p}]", "\"fd00:1::/64\"}, uplinks: [p]"}}, []string{"uplink of a is"}},
		"no uplinks":                            {[][2]string{{"\"fd00:1::/64\"}, uplinks: [{name: p}]", "\"fd00:1::/64\"}, uplinks: []"}}, []string{"site a has 0 uplinks"}},
		"clients":                               {[][2]string{{"clients:\n", "clients: {}\nxx:\n"}}, []string{"clients of the scenario is", `unknown key "xx"`}},
		"a client":                              {[][2]string{{"{name: c, at: a}", "c"}}, []string{"client is"}},
		"a client's name":                       {[][2]string{{"{name: c,", `{name: "c c",`}, {"client: c,", `client: "c c",`}}, []string{"name"}},
		"a client's name, a number":             {[][2]string{{"{name: c,", `{name: 5,`}, {"client: c,", `client: 5,`}}, []string{"name of client"}},
		"a client without a name":               {[][2]string{{"{name: c,", "{"}}, []string{"client has no name"}},
		"a client with an empty one":            {[][2]string{{"{name: c,", `{name: "",`}}, []string{"name"}},
		"a client with none":                    {[][2]string{{"{name: c,", `{name: ,`}}, []string{"name"}},
		"a guest":                               {[][2]string{{"{name: g, site: a}", "[g]"}}, []string{"guest is"}},
		"a guest's name":                        {[][2]string{{"{name: g,", "{name: -g,"}}, []string{"name"}},
		"traffic":                               {[][2]string{{"{name: t,", "{name: [t],"}}, []string{"name of traffic is"}},
		"a timeout of zero":                     {[][2]string{{"expect:\n", "end: {timeout: 0}\nexpect:\n"}}, []string{"timeout of end is zero"}},
		"a timeout without its unit":            {[][2]string{{"expect:\n", "end: {timeout: 60}\nexpect:\n"}, {"at: 2s", "at: 20m"}}, []string{"timeout of end is 60"}},
		"one that is there, and another's name": {[][2]string{{"guest: g, to: b", "guest: h, to: b"}}, []string{`unknown guest "h"`}},
	} {
		text := whole
		for _, p := range c.put {
			text = strings.ReplaceAll(text, p[0], p[1])
		}
		_, err := Parse("f", []byte(text))
		var all *Errors
		if !errors.As(err, &all) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for i, e := range all.List {
			if i >= len(c.want) || !strings.HasPrefix(e.What, c.want[i]) {
				t.Errorf("%s: %v, want %q", name, err, c.want)
				break
			}
		}
		if len(all.List) < len(c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
