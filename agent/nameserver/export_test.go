package nameserver

// TryAfter is of Tell.
var TryAfter = &tryAfter
