// Package qemu runs guests in QEMU, each in a process of its own that outlives us.
//
// A guest's runtime directory holds qmp.sock (control), look.sock (a second monitor, for
// people and the lab: see Look), guest.sock (guest channel), pid, serial.log (the guest's
// console) and qemu.log (what QEMU says). Whoever knows the directory can Attach to the
// process again.
//
// Devices get fixed PCI addresses that follow from the Spec alone, so that a destination
// started with the same Spec (other taps, other directory, Incoming) takes the guest.
package qemu
