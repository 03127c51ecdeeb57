package proxy

import (
	"testing"
	"testing/synctest"
	"time"

	"godwit/transfer/encode"
	"godwit/transfer/wire"
)

// TestWithdrawnAfterTheLastOffer: that a guest beside this is gone is said also where as much was offered as may be.
func TestWithdrawnAfterTheLastOffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		beside := new(Beside)
		other := beside.lend(nil, 8)
		for page := range uint64(8) {
			other.add([]encode.Decoded{{Page: page, Data: someContent(byte(page + 1))}})
		}
		d := &Destination{config: DestinationConfig{Beside: beside}, ctx: t.Context(), handed: make(chan struct{}), offers: make(chan wire.Offer, 8)}
		next := func() (o wire.Offer) {
			time.Sleep(2 * besideEvery) // of the bubble
			synctest.Wait()
			select {
			case o = <-d.offers:
			default:
				t.Error("nothing is said")
			}
			return o
		}
		over := make(chan struct{})
		go func() { defer close(over); d.indexBeside(3) }()
		if o := next(); o.Set != other.set || len(o.Hashes) != 3 {
			t.Errorf("offered: %+v", o)
		}
		other.end()
		if o := next(); o.Set != other.set || len(o.Hashes) != 0 {
			t.Errorf("once it has ended: %+v", o)
		}
		<-over // nothing of it is left to be told
	})
}
