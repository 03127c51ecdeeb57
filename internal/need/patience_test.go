package need

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := Patient(time.Second)
		time.Sleep(time.Hour) // the machine stands still
		for range 90 {
			if p.Over() {
				t.Fatalf("over after %v", p.took)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if took := p.Took(); took != time.Second || !p.Over() {
			t.Errorf("waited for %v; over: %v", took, p.Over())
		}
	})
}
