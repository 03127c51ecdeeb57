// Package qstream takes QEMU's migration stream apart into pages as it comes, and writes a
// stream that another QEMU loads.
//
//	p := qstream.NewParser(conn)          w := qstream.NewWriter(conn, prologue)
//	for {                                 w.Begin()
//		event, err := p.Next()            w.Page(n, data) …  in any order, any subset
//		switch e := event.(type) { … }    w.End(); w.Tail(bytes)
//	}
//
// It computes only: readers and writers are the caller's, and nothing here waits or knows
// the time. A Parser and a Writer belong to one goroutine each.
//
// # The stream
//
// All integers are big-endian. Read in QEMU's migration/savevm.c, ram.c, qemu-file.c and
// migration.c, versions 7.2 to 10.0, and seen in captures (testdata).
//
//	header         be32 "QEVM", be32 version 3
//	CONFIGURATION  0x07, be32 n, machine type of n bytes; then any number of
//	  SUBSECTION   0x05, u8 n, name, be32 version, fields. Known, of the names
//	               configuration/capabilities      be32 count, count × (u8 n, name)
//	               configuration/target-page-bits  be32
//	               configuration/uuid              16 bytes
//	COMMAND        0x08, be16 command, be16 n, n bytes; see Command
//	START, FULL    0x01, 0x04, be32 section id, u8 n, name, be32 instance, be32 version, payload
//	PART, END      0x02, 0x03, be32 section id, payload
//	FOOTER         0x7e, be32 section id, after every START, FULL, PART and END
//	EOF            0x00
//	VMDESCRIPTION  0x06, be32 n, JSON of n bytes
//
// In this order: header, CONFIGURATION, [OPEN_RETURN_PATH, PING], [POSTCOPY_ADVISE], START of
// "ram" version 4, PART …, [SWITCHOVER_START], END, FULL of every device, EOF, VMDESCRIPTION.
// A payload has no length, so only known ones can be stepped over.
//
// The payload of "ram" is a sequence of records. Each begins with a be64: an offset within a
// block, a multiple of 4096, and flags in its lower 12 bits.
//
//	ZERO      0x02  [block] u8: the page is filled with this byte, which is 0
//	MEM_SIZE  0x04  in START, once, first: the be64 is the sum of the lengths. Per block
//	                u8 n, name, be64 length, and where it is neither of the host's page size
//	                nor postcopy-ram off: be64 page size
//	PAGE      0x08  [block] 4096 bytes
//	EOS       0x10  the section's payload ends
//	CONTINUE  0x20  [block] is missing: it is that of the page before, also over the end of a
//	                section; without it [block] is u8 n, name
//
// XBZRLE 0x40, HOOK 0x80 (RDMA), COMPRESS 0x100 and MULTIFD_FLUSH 0x200 are refused, and so is
// a ZERO that fills with another byte, which no QEMU of today writes.
//
// Where a page size may follow a length it is told from what comes otherwise: a name's
// length is not 0, and a record's word after START's last block is less than 4096.
//
// # Pages
//
// Blocks, in START's order, are laid end to end and counted in pages of 4096 bytes: that
// makes a page's number. See Blocks.
//
// # The tail
//
// What follows END's footer: devices, EOF, VMDESCRIPTION. With a return path the socket
// stays open after it, so its end has to be found in it: a 00 06, a be32 n, and n bytes of
// JSON that describe a machine's devices. A stream without a description (machine option
// suppress-vmdesc) is not supported: its end could not be told from a broken connection. A
// guest that wrote a whole description into its devices' state could make its own tail end
// early, if the bytes read end there too: no QEMU loads that.
//
// # Opaque streams
//
// A section that is not known (virtio-mem-early, dirty-bitmap, vfio) makes the rest of the
// stream opaque: from there on it can only be passed on as it is. See Opaque.
//
// # Post-copy
//
// A Writer can let its QEMU run before all pages are there, whatever the source is doing:
//
//	OPEN_RETURN_PATH, POSTCOPY_ADVISE, START, PART …       Advise, Page
//	RAM_DISCARD                 u8 0, u8 n, block, u8 0,   Discard
//	                            1 to 12 × (be64 offset, be64 length)
//	PACKAGED                    be32 n, and after the      Run
//	                            command n bytes: LISTEN, devices, RUN
//	PART …, END, EOF                                       Page, Finish
//
// At least one RAM_DISCARD has to come before PACKAGED, and together they have to name every
// page that was not written. QEMU asks for missing pages on the return path (REQ_PAGES).
//
// # The return path
//
// Messages of a be16 type, a be16 length and data, from the destination to the source; see
// Message.
//
//	SHUT 1           be32: 0, or the destination failed
//	PONG 2           be32 of the PING
//	REQ_PAGES_ID 3   be64 offset, be32 length, u8 n, block of n > 0 bytes
//	REQ_PAGES 4      be64 offset, be32 length; in the block of the request before
//	RECV_BITMAP 5    u8 n, block; be64 n and n bytes follow it, outside of any message
//	RESUME_ACK 6     be32
//	SWITCHOVER_ACK 7 nothing
package qstream
