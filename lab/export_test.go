package lab

import "time"

// Around is around.
const Around = time.Duration(around)
