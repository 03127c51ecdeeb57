package proxy

func init() { freeAfter = 0 } // tests look for goroutines that are left
