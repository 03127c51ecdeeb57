package mptcp

// Numbers of linux/mptcp.h. Kernels after 6.6 renamed several of them (PM_ATTR_ADDR
// became PM_ENDPOINT_ADDR and so on); the values are the same.
const (
	familyName  = "mptcp_pm"
	eventsGroup = "mptcp_pm_events"
	version     = 1

	cmdAddAddr   = 1
	cmdDelAddr   = 2
	cmdGetAddr   = 3
	cmdSetLimits = 5
	cmdGetLimits = 6

	attrAddr        = 1
	attrRcvAddAddrs = 2
	attrSubflows    = 3

	addrFamily = 1
	addrID     = 2
	addrV4     = 3
	addrV6     = 4
	addrPort   = 5
	addrFlags  = 6
	addrIfIdx  = 7

	evToken  = 1
	evSaddr4 = 5
	evSaddr6 = 6
	evSport  = 9
)

// Numbers of linux/inet_diag.h, linux/sock_diag.h and linux/tcp.h.
const (
	netlinkSockDiag  = 4
	sockDiagByFamily = 20

	diagInfo        = 2
	diagMemory      = 7 // INET_DIAG_SKMEMINFO
	diagUlpInfo     = 19
	diagReqProtocol = 3
	diagReqBytecode = 1

	bytecodeSource = 7 // INET_DIAG_BC_S_COND

	ulpName  = 1
	ulpMPTCP = 3

	subTokenLoc = 2
	subFlags    = 8

	flagCapableRem       = 1 << 0
	flagCapableLoc       = 1 << 1
	flagJoinRem          = 1 << 2
	flagJoinLoc          = 1 << 3
	flagFullyEstablished = 1 << 6

	infoFallback = 1 << 0

	protoMPTCP = 262
)
