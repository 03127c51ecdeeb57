package serve

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"godwit/lab/traffic/record"
)

// TestRecordBeforePong: a client that waits for a record and for the answer to a ping hears the record first, as when a
// guest wakes for which both are due. The ping was answered first before, which takes an emulated guest longer than the
// record.
func TestRecordBeforePong(t *testing.T) {
	server, client := pair(t)
	synctest.Test(t, func(t *testing.T) {
		c := newConn(t.Context(), server)
		pings, gone := make(chan uint64), make(chan struct{})
		go func() {
			synctest.Wait() // until it awaits what comes first
			pings <- 7
		}()
		overdue := func() bool { return true }
		if more, err := c.await(nil, overdue, pings, gone); !more || err != nil || len(c.asked) != 1 {
			t.Fatalf("await: %v, %v, %d pings wait for their answers; want a record before the ping's", more, err, len(c.asked))
		}
		if more, err := c.await(record.Overdue, overdue, nil, gone); !more || err != nil {
			t.Fatalf("await: %v, %v", more, err)
		}
	})
	wantPong(t, client, 7)
}

// TestPongBetweenRecords: where no record is due a ping is answered at once, and between has none without a client.
func TestPongBetweenRecords(t *testing.T) {
	server, client := pair(t)
	c := newConn(t.Context(), server)
	pings, gone, ended := make(chan uint64, mostPings), make(chan struct{}), make(chan bool, 1)
	pace := record.NewPace(time.Hour, true)
	defer pace.Stop()
	go func() {
		more, err := c.between(pace, pings, gone)
		ended <- more || err != nil
	}()
	pings <- 7
	wantPong(t, client, 7)
	close(gone)
	if <-ended {
		t.Error("between wants another record for a client that has gone")
	}
}

func wantPong(t *testing.T, client *net.TCPConn, number uint64) {
	t.Helper()
	_ = client.SetReadDeadline(time.Now().Add(5 * time.Second))
	f, err := record.NewReader(client, smallBuffer, clock).Next()
	if err != nil || f.Kind != record.Pong || f.Number != number {
		t.Fatalf("answer: %+v, %v", f.Header, err)
	}
}

// pair is a stream's two ends.
func pair(t *testing.T) (server, client *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s.(*net.TCPConn), c.(*net.TCPConn)
}
