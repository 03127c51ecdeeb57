// Package peertest is two hosts of a fleet, for tests of what goes between their agents.
package peertest

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"godwit/agent/peer"
)

// Loopback is the address that both hosts have.
var Loopback = netip.MustParseAddr("127.0.0.1")

// Twice are two paths between them.
var Twice = []peer.Path{{Name: "a", Local: Loopback, Remote: Loopback}, {Name: "b", Local: Loopback, Remote: Loopback}}

// Link is a link from one host to another, until the test ends: its agent answers calls by handler, and takes streams.
func Link(t *testing.T, from, to string, handler http.Handler, stream func(*peer.Stream)) *peer.Link {
	t.Helper()
	link, serve := Silent(t, from, to)
	serve(t.Context(), handler, stream)
	return link
}

// Silent is a link from one host to another, until the test ends, whose agent does not listen but while it is served.
func Silent(t *testing.T, from, to string) (link *peer.Link, serve func(context.Context, http.Handler, func(*peer.Stream))) {
	t.Helper()
	dir := t.TempDir()
	ca, err := peer.NewFleetCA(dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	identity := func(host string) *peer.Identity {
		if err := ca.Issue(host, time.Now()); err != nil {
			t.Fatal(err)
		}
		id, err := peer.LoadIdentity(filepath.Join(dir, "ca.pem"), filepath.Join(dir, host+".pem"), filepath.Join(dir, host+".key"))
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	theirs, ours := identity(to), identity(from)
	ln, err := net.Listen("tcp", netip.AddrPortFrom(Loopback, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddrPort(ln.Addr().String())
	ln.Close() // at once before Link takes it again: another process may choose the same
	link = peer.NewLink(ours, to, at.Port(), []peer.Path{{Name: "lo", Local: Loopback, Remote: Loopback}})
	t.Cleanup(link.Close)
	return link, func(ctx context.Context, handler http.Handler, stream func(*peer.Stream)) {
		t.Helper()
		if err := peer.Serve(ctx, theirs, []netip.AddrPort{at}, handler, stream, slog.New(slog.DiscardHandler)); err != nil {
			t.Error(err)
		}
	}
}
