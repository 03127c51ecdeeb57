// Package netstate keeps what the kernel must hold while a guest is away from
// home: routes, rules, neighbour entries, proxied addresses and MAC redirects.
//
// The wish is a value ([State], one per guest) and [Set] makes the kernel equal
// to it. All functions act in the network namespace of the calling thread; a
// host's agent lives in its host's namespace.
//
// # The cures
//
// A guest that left its subnet meets the problems that Le & Nahum list (§IV). Each
// line below is a problem and, behind the colon, its cure.
//
// At home ([Away]), once active:
//
//   - the router still sends to the guest's MAC: a bridge rule rewrites the
//     destination to the bridge's MAC, so that the host routes the packet;
//   - the host sends it on: host route of the address into the tunnel;
//   - what comes back leaves by the subnet's router, which may answer ARP for its own
//     subnet alone, in which the bridge has no address: the host asks for the router as
//     nobody, by a probe. What goes to a neighbour goes there without the router;
//   - in IPv6 the router's answer may come from where a firewall sees no way back to: a rule
//     leads what link-local addresses say to that subnet to the bridge;
//   - the router's ARP entry expires: the host answers ARP and NDP for this
//     one address (a proxy neighbour entry, never proxy_arp for the whole device);
//   - nothing else enters the guest's taps, so that a QEMU that is about to be
//     stopped has nothing left to throw away.
//
// Where the guest lives now ([Visiting]):
//
//   - packets for it come out of the tunnel: host route to the bridge, permanent
//     neighbour entry and static forwarding entry, so no ARP delays or misleads them.
//     Until it runs here that is for what comes out of the tunnel alone, as this host and
//     its neighbours may be talking to it where it is;
//   - its packets go to a router that is not here: the bridge rule gives them to
//     the host, a source rule sends them into the tunnel, whatever their
//     destination (also to a neighbour: a client's connection keeps its path). Where that
//     router is this host itself, as the guest came from another one of this link, there
//     is no such rule, or its home would send all of it back here (Direct);
//   - it talks to another guest of its home, or to one that lives here: what goes to an
//     address that has its way here takes that before any way by source, or packets
//     between two such guests go round in circles;
//   - its own ARP entry expires: the host answers for the old gateway, at the guest's taps
//     alone, as others may have a router of that address, unless it is that
//     itself; and, at the tap of the NIC that had them, for the link-local addresses of its routers, by which alone
//     it knows routers that it has from advertisements (RFC 4861 §6.3.4);
//   - what those routers granted it runs out, as it does not hear them: what they said
//     last is said again at that tap ([Advertise]), and it is answered whom it looks for
//     among its old neighbours ([Answer]). Both are no state of the kernel's: the agent
//     keeps them;
//   - routers here would give it an address and a default route of this network, and
//     redirect it: nothing that they advertise reaches a NIC that came from another link
//     ([OffLink]), and DHCP servers here do not hear it;
//   - a firewall that filters by state sees connections in their middle, here and at
//     home: their packets are not tracked while they take the detour, and chains of
//     others that may drop what is forwarded let that address pass;
//   - at home again, neighbours know the MAC of the NIC with which the guest left, or of
//     the one that it had before a handover: those frames take the way by the host, too,
//     but for what the guest tells neighbours itself (RFC 4861);
//   - where the operator owns the routes, the address stands in a routing table of its
//     own ([Visiting.Publish]), which a speaker of BGP announces.
//
// A host that forwards IPv6 takes no routes from routers' advertisements, and drops
// those that it has: so accept_ra is 2 on its devices meanwhile.
//
// Beside the cures, both ends note each flow that takes the detour, with a counter
// that nft shows ([Flows]), and lower the MSS of TCP connections that begin to what
// the tunnel carries in one piece ([Away.Fits]).
//
// # Flip
//
// Set with Active=false prepares: a host route to the bridge and the guest's
// permanent neighbour entry, which lead where the bridge leads anyway. Set with true
// then adds the proxy entry, replaces the route, and commits one nftables
// transaction. Back, it goes in an order in which each packet, at any instant, has
// a whole way to the guest or into the tunnel. The rule that closes the taps
// lets the guest's own unicast through, so a packet between two hooks while the
// transaction commits is not lost: after it none can come.
//
// # Marks
//
// The table "godwit" (family bridge) is also the notebook: the chain
// "about-GUEST" says in comments what was asked for, and "remember" what sysctls
// were before, and permanent neighbours. The notebook is written before anything it speaks of. Routes,
// rules and neighbour entries carry [Protocol], our rules in the firewall's chains
// a comment. So [Found] and [CleanUp] need no memory. Where somebody loads the host's
// nftables anew, or configures its network, [Stands] and [Lacking] notice what is gone.
package netstate
