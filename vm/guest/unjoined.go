package guest

import (
	"fmt"
	"time"
)

// Accepts is what the kernel of a connection's other end must have been told, as that opens, for it to follow.
const Accepts = "add_addr_accepted of ip mptcp limits there, 0 by default, taken as a connection opens"

// WhyUnjoined says why a connection stays whose peer was told of the next address, and did not come within limit.
func WhyUnjoined(limit time.Duration) string {
	return fmt.Sprintf("the peer did not join within %v: its limits (%s), a firewall, or a lost path", limit, Accepts)
}

// WhyUnjoinedAgain says it of one that did not come at the last move either, and was not waited for as long.
const WhyUnjoinedAgain = "the peer did not join this time either, nor within the limit of the last: its limits (" + Accepts + "), or a firewall"

// WhyAway says it of one whose client may not have heard of the next address.
const WhyAway = "nothing was heard of its client as it was told of the next address: it may be out of reach, or asleep"
