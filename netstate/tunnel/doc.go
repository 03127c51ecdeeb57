// Package tunnel carries a guest's packets between two hosts while connections
// still use an address of the other site.
//
// A tunnel is a lease. Every tunnel has a process of its own, which outlives the
// agent that started it and ends by itself: when its lease passes, when told, or
// when its device is deleted. Its runtime directory holds NAME.sock (control),
// NAME.json (what it is, without keys) and NAME.log; the device's alias begins
// with [Alias]. So a restarted agent finds it again ([Found]).
//
// These kinds carry the packets:
//
//   - wireguard, by the kernel where it can, otherwise in the process itself: so where the
//     kernel would send from another address than the tunnel's, or has its port in use at
//     another address;
//   - vxlan, gre and ipip, by the kernel where it has them ([Supported]), not encrypted:
//     only when asked for;
//   - auto, which is wireguard.
//
// Inner packets of the whole MTU (1500) pass whatever the path's MTU is: outer
// packets carry no DF bit and IP fragments them. That needs a path that passes
// fragments, which [Tunnel.Verify] shows with an echo of full size. Some kinds never
// fragment ([Fragments]); they are refused where a full packet does not fit in one piece.
//
// # Addresses
//
// Each end has a link-local inner address (RFC 3927) that both ends derive from
// the outer pair; it exists for Verify. Other addresses are routed by device
// ("dev NAME"); with vxlan, which has Ethernet inside, by the far end, that the
// only permanent neighbours of the device name.
//
// # Control
//
// One JSON object per line and answer on the unix socket: {"op": "status"},
// {"op": "lease", "until": TIME}, {"op": "stop"}; the answer is a status, or {"error": …}.
package tunnel
