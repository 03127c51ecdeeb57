// Package scenario reads the lab's scenario files: sites, clients, guests,
// traffic, steps and expectations, as the contract "scenario files" defines them.
//
// Parse is strict. An unknown key or name, a number without its unit, a subnet
// that overlaps another are all errors with line, column and what is allowed.
// A Scenario that Parse returned needs no further checking: every name in it is
// defined, every default filled in. The package computes only: it is given
// bytes, and opens nothing.
package scenario

import (
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Scenario is one run of the lab.
type Scenario struct {
	Name    string
	File    string // as given to Parse, for messages
	Sites   []Site
	Clients []Client
	Guests  []Guest
	Traffic []Traffic
	Steps   []Step // sorted: those at a time by that time, those at a phase after them, in file order
	End     End
	Expect  []Expect
	Idle    []Error `json:"-"` // keys that do nothing where they stand; the contract allows them
}

// Site is a network location. Its number in the file gives its addresses.
type Site struct {
	Name             string
	GuestV4, GuestV6 netip.Prefix // masked; at least one is valid
	Uplinks          []Uplink     // at least one
	Hosts            int          // at least 1
	SubnetAgent      string       // the one of several hosts that stands for the addresses of guests that left the others; "": none does
}

// HostNames lists the site's hosts: the site's own name when it has one, else
// SITE-1, SITE-2 and so on.
func (s Site) HostNames() []string {
	if s.Hosts <= 1 {
		return []string{s.Name}
	}
	names := make([]string, s.Hosts)
	for i := range names {
		names[i] = s.Name + "-" + strconv.Itoa(i+1)
	}
	return names
}

// has says whether a host of this name, or the site by its own, is meant.
func (s Site) has(siteOrHost string) bool {
	if siteOrHost == s.Name {
		return true
	}
	number, ok := strings.CutPrefix(siteOrHost, s.Name+"-")
	n, err := strconv.Atoi(number)
	return ok && err == nil && n >= 1 && n <= s.Hosts && s.Hosts > 1 && strconv.Itoa(n) == number
}

// Carries says what an uplink is used for.
type Carries string

// The uses of an uplink.
const (
	CarriesGuest     Carries = "guest"
	CarriesMigration Carries = "migration"
	CarriesBoth      Carries = "both"
)

// Uplink is one emulated link between a site and the internet.
type Uplink struct {
	Name          string
	Carries       Carries
	Rate          int64         // bit/s of IP packets; 0: unlimited
	Delay, Jitter time.Duration // one way, of this link
	Loss          float64       // share of packets, 0 to 1
	MTU           int           // bytes
	Queue         int64         // bytes; 0: the link's default, one bandwidth-delay product and at least 64 KiB
}

// Internet is the place of a client that is at no site.
const Internet = "internet"

// Client has connections to guests.
type Client struct {
	Name            string
	At              string // a site's name, or Internet
	MPTCP           string // full, backup, single, off
	NAT             bool
	Uplinks         int      // how many addresses it has, at least 1
	UplinkNames     []string // as many as Uplinks
	AddAddrAccepted int      // how many announced addresses it accepts
}

// Guest is a virtual machine of the lab.
type Guest struct {
	Name    string
	Site    string // a site's name, or a host's where the site has several
	Memory  int64  // bytes
	VCPUs   int
	Disks   []int64 // bytes each
	Image   string  // tiny, debian12, debian13
	Agent   string  // who answers in it: godwit, qga; dhcp: nobody
	Run     []string
	Network string // auto, mptcp, drain, tunnel
}

// Traffic is one stream of records between a client and a guest.
type Traffic struct {
	Name        string
	Client      string
	Guest       string
	Kind        string        // ticks, download, upload, requests, udp, iperf3, exec
	Every       time.Duration // 0: ticks and requests by Rate
	Rate        int64         // bit/s; 0: as fast as it goes
	Connections int
	Family      string        // v4, v6
	Start       time.Duration // after time 0; 0: it runs before time 0 already
	Command     string        // of kind exec
	Silent      bool          // not pinged between records; of ticks and requests
}

// End says when a run is over.
type End struct {
	AfterLastMigration time.Duration // counted from the last outcome
	Timeout            time.Duration // counted from time 0; a run that meets it has not done what was expected
}

// Site finds a site by its name.
func (s *Scenario) Site(name string) (Site, bool) {
	for _, site := range s.Sites {
		if site.Name == name {
			return site, true
		}
	}
	return Site{}, false
}

// Hosts resolves a name to hosts: a host's name to itself, a site's name to all
// of its hosts in order. An unknown name gives none.
func (s *Scenario) Hosts(siteOrHost string) []string {
	for _, site := range s.Sites {
		switch {
		case site.Name == siteOrHost:
			return site.HostNames()
		case site.has(siteOrHost):
			return []string{siteOrHost}
		}
	}
	return nil
}

// SiteOf finds the site that a site's or host's name belongs to.
func (s *Scenario) SiteOf(siteOrHost string) (Site, bool) {
	for _, site := range s.Sites {
		if site.has(siteOrHost) {
			return site, true
		}
	}
	return Site{}, false
}

// Guest finds a guest by its name.
func (s *Scenario) Guest(name string) (Guest, bool) {
	for _, g := range s.Guests {
		if g.Name == name {
			return g, true
		}
	}
	return Guest{}, false
}
