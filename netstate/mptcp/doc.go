// Package mptcp speaks to the kernel's MPTCP path manager and lists MPTCP
// connections, in the current network namespace.
//
// The path manager (generic netlink family mptcp_pm, linux/mptcp.h) knows limits
// and endpoints. An endpoint is a local address that may be announced to peers
// (FlagSignal) or used for new subflows (FlagSubflow). Its id travels on the wire
// (ADD_ADDR and REMOVE_ADDR, RFC 8684 §3.4). Id 0 is nobody's endpoint: it stands
// for the address of a connection's first subflow, so it is deleted with the
// address in hand, for all connections that began there.
//
// Connections come from sock_diag (linux/inet_diag.h): the subflows are ordinary
// TCP sockets with the upper layer "mptcp", grouped here by their local token.
//
// A call acts in the network namespace of the calling thread at the moment of
// the call; an event stream stays with the namespace that it was opened in.
package mptcp

import "errors"

var (
	// ErrUnsupported means that the kernel has no MPTCP path manager, or not
	// the diagnostics asked for (a module such as udp_diag is missing).
	ErrUnsupported = errors.New("not supported by this kernel")
	// ErrFull means that the path manager knows MaxEndpoints already.
	ErrFull = errors.New("eight endpoints are known already")
	// ErrInterrupted means that a listing kept changing while it was read.
	ErrInterrupted = errors.New("listing kept changing")
)
