package guest

// CapPorts is the capability to announce the next address with a port of its own to whoever does not come to it else.
const CapPorts = "await_join.ports"

// WhyDialled says why a connection stays that the guest itself opened. The guest's kernel is told to announce the next
// address and to join nobody, as a join to one of its clients would go to a port at which that does not listen. Whoever
// was dialled takes an announced address where its kernel was told to (add_addr_accepted of `ip mptcp limits`, 0 by
// default), and then one with a port of its own alone (CapPorts), as at the port that dialled nobody listens.
const WhyDialled = "the guest opened it, and its peer took no announced address (" + Accepts + ")"

// WhyDialledPortless says it of a guest that announces none with a port.
const WhyDialledPortless = "the guest opened it, and announces no port by which its peer could come, as our helper does"
