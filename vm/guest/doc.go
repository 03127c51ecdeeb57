// Package guest is the channel between an agent and the inside of a guest.
//
// # Wire format
//
// The channel is a virtio-serial port named org.godwit.guest.0: a character device
// in the guest, a unix socket at the host. Both directions carry lines. A line is
// one JSON object without a raw newline in it, ended by "\n", of at most MaxLine
// bytes. Empty lines mean nothing.
//
//	request  host → guest  {"id": "TOKEN-7", "method": "info", "params": {…}}
//	response guest → host  {"id": "TOKEN-7", "result": {…}} or {"id": …, "error": "…"}
//	event    guest → host  {"event": "tick", "n": 12, "mono_ns": 120034000}
//
// Responses come in any order: a request that waits holds up no other.
//
// # Sync
//
// The port knows no connections: what one host left half read or half written is
// still there when the next connects, and so is what the guest wrote before a
// migration took it to another host. So a host begins with a newline, which ends
// any half line of its predecessor, and then
//
//	{"id": "TOKEN", "method": "sync", "params": {"token": "TOKEN"}}
//
// with a random TOKEN, and discards everything until the line that answers it. The
// guest begins that answer with a newline of its own. A sync also ends the waiting
// requests (await_join) of the host before: nobody will read their answers. Ids
// begin with the token, so that a late answer to somebody else is nobody's.
//
// A program of the guest that is started begins with a newline, too, as one before it may
// have been killed in a line, and the event "begun": what that one was asked, nobody
// answers, and a host that waits for it asks once more: what is asked may be what it died of.
// One whose sync was not answered yet syncs again before that.
//
// # Again
//
// Every method may be called again with the same parameters, at any time, also
// when a first call's answer was lost or the guest moved meanwhile: it makes the
// same state, and says the same. (exec runs again; dirty areas are made once.)
//
// # Bounds
//
// A host takes no line beyond MaxLine, and no list or word in an answer that is longer
// than any guest's (Bounded): such an answer is an error. An event with words like that
// is nobody's.
//
// # Never waiting
//
// A guest writes without waiting for a reader. Events that do not fit into its
// queue are dropped, and their numbers show the gap.
//
// Durations in parameters and results are named by unit: _ms, _ns.
package guest

// PortName is the virtio-serial port's name.
const PortName = "org.godwit.guest.0"

// Protocol is the number of this protocol; Info reports the guest's.
const Protocol = 1
