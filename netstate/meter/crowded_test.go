package meter

import (
	"encoding/binary"
	"testing"

	"godwit/internal/need"
)

// TestReadOfManyFlows: flows that come and go while a meter is read, as where thousands of clients ask by UDP, keep
// nobody from reading it; each that was there all the time is told of, once.
func TestReadOfManyFlows(t *testing.T) {
	need.Root(t)
	const stay, others, reads = 500, 1000, 100 // the least of the maps forgets what many processors have taken beyond 4096
	for name, open := range map[string]func(string) (*Meter, error){"forgets nothing": Open, "recent": OpenRecent} {
		t.Run(name, func(t *testing.T) {
			m, err := open("lo")
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			key := func(n int) []byte {
				k := append([]byte{0, 4, 17}, make([]byte, keySize-3)...)
				binary.BigEndian.PutUint32(k[8:], uint32(n)) //nolint:gosec // some thousand
				return k
			}
			value := binary.NativeEndian.AppendUint64(make([]byte, 16), 1)
			for n := range stay {
				if err := m.flows.Put(key(n), value); err != nil {
					t.Fatal(err)
				}
			}
			stop, done := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(done)
				for n := 0; ; n++ {
					select {
					case <-stop:
						return
					default: // there are never more than it takes
						m.flows.Put(key(stay+n%others), value)          //nolint:errcheck // the test is of who reads
						m.flows.Delete(key(stay + (n+others/2)%others)) //nolint:errcheck // it may be gone
					}
				}
			}()
			for range reads {
				all, err := m.Read()
				if err != nil {
					t.Error(err)
					break
				}
				there := 0
				for k := range all {
					if a := k.Src.As4(); binary.BigEndian.Uint32(a[:]) < stay && k.Proto == 17 {
						there++
					}
				}
				if there != stay {
					t.Errorf("%d flows of %d that were there", there, stay)
					break
				}
			}
			close(stop)
			<-done
		})
	}
}
