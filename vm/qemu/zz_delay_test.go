package qemu_test

import (
	"crypto/rand"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"godwit/vm"
)

type piece struct {
	at time.Time
	b  []byte
}

func delayed(dst io.Writer, src io.Reader, d time.Duration) {
	ch := make(chan piece, 100000)
	go func() {
		defer close(ch)
		for {
			b := make([]byte, 65536)
			n, err := src.Read(b)
			if n > 0 {
				ch <- piece{time.Now().Add(d), b[:n]}
			}
			if err != nil {
				return
			}
		}
	}()
	for p := range ch {
		time.Sleep(time.Until(p.at))
		if _, err := dst.Write(p.b); err != nil {
			return
		}
	}
}

func TestZZ(t *testing.T) {
	data := make([]byte, diskData)
	rand.Read(data)
	from, to := sparse(t, data, 20<<20), sparse(t, nil, 0)
	source, waiting, socket := pair(t, from, to)
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			a, err := l.Accept()
			if err != nil {
				return
			}
			b, _ := net.Dial("unix", socket)
			go func() { delayed(b, a, 50*time.Millisecond); b.Close() }()
			go func() { delayed(a, b, 50*time.Millisecond); a.Close() }()
		}
	}()
	defer l.Close()
	_ = os.Stdout
	begun := time.Now()
	if err := source.StartMirror(t.Context(), vm.Mirror{Disk: "disk0", Socket: filepath.Join(dir, "s")}); err != nil {
		t.Fatal(err)
	}
	t.Logf("start %v", time.Since(begun))
	awaitMirror(t, source, func(s vm.MirrorState) bool { return s.Ready })
	t.Logf("ready %v", time.Since(begun))
	msock := filepath.Join(dir, "m")
	opts := vm.MigrateOptions{URI: "unix:" + msock, HoldSwitchover: true, PauseBeforeSwitchover: true}
	if err := waiting.PrepareIncoming(t.Context(), opts); err != nil {
		t.Fatal(err)
	}
	if os.Getenv("NOMIG") == "" {
		if err := source.Migrate(t.Context(), opts); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(500 * time.Millisecond)
	begun = time.Now()
	if err := source.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("stop %v", time.Since(begun))
	begun = time.Now()
	if err := source.FinishMirrors(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("finish %v", time.Since(begun))
	begun = time.Now()
	if os.Getenv("NOMIG") == "" {
		if err := source.ReleaseSwitchover(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := waiting.AwaitMigration(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Logf("memory %v", time.Since(begun))
	}
}
