package scenario

import "time"

// The kinds of expectation, as they are written in the file.
const (
	ExpectMigrations      = "migrations"
	ExpectConnections     = "connections"
	ExpectServiceGap      = "service_gap"
	ExpectVMDowntime      = "vm_downtime"
	ExpectNetworkDowntime = "network_downtime"
	ExpectMigrationTime   = "migration_time"
	ExpectDroppedPackets  = "dropped_packets"
	ExpectLeftovers       = "leftovers"
)

// ExpectMoved is the kind of `connections: moved`; that of `connections: survive` is
// ExpectConnections.
const ExpectMoved = "connections: moved"

// Expect is one expectation.
type Expect struct {
	Kind     string
	Outcomes []string      // migrations: one outcome for all of them, or one for each in the order of their requests
	Each     bool          // migrations: they were listed: one for each
	Traffic  string        // service_gap
	Guest    string        // vm_downtime, network_downtime, migration_time; dropped_packets, where "" is any guest
	Below    time.Duration // those four: the number seen must be smaller
	AtMost   int64         // dropped_packets: the number seen must not be greater
	Line     int           // in the file, for messages
}
