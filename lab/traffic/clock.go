package traffic

import "time"

var began = time.Now()

// now is unix nanoseconds that never jump: the wall clock when the process
// began, and the monotonic clock since.
func now() int64 { return began.UnixNano() + int64(time.Since(began)) }
