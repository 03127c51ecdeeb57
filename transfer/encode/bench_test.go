package encode_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"go/build"
	"io"
	"math/big"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"godwit/transfer/encode"
	"godwit/transfer/pages"
	"godwit/transfer/wire"
)

// guestMemory returns distinct pages, none of zeros, as a guest has them: four in ten of
// programs (this one), three of text (Go's library), two of records with pointers and small numbers, one
// of what does not compress. GODWIT_MEMORY names a file to take instead, such as one that
// QEMU's pmemsave wrote.
func guestMemory(b *testing.B, count int) [][]byte {
	b.Helper()
	if name := os.Getenv("GODWIT_MEMORY"); name != "" {
		return dumped(b, name, count)
	}
	name, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	program, err := os.ReadFile(name)
	if err != nil {
		b.Fatal(err)
	}
	var text []byte
	sources, err := filepath.Glob(filepath.Join(build.Default.GOROOT, "src", "*", "*", "*.go"))
	if err != nil || len(sources) == 0 {
		b.Skipf("needs the sources of Go's library as text: %v", err)
	}
	for _, name := range sources {
		source, err := os.ReadFile(name)
		if err != nil {
			b.Fatal(err)
		}
		text = append(text, source...)
	}
	random := rand.New(rand.NewPCG(1, 2))
	seen := map[string]bool{string(make([]byte, pages.Size)): true}
	var memory [][]byte
	for at, read := 0, 0; len(memory) < count; {
		page := make([]byte, pages.Size)
		// Kinds come in runs of 32 pages, as a file's pages lie together.
		switch k := len(memory) / 32 % 10; {
		case k < 4 && at+pages.Size <= len(program):
			copy(page, program[at:])
			at += pages.Size
		case k < 7 && read+pages.Size <= len(text):
			copy(page, text[read:])
			read += pages.Size
		case k < 9:
			for n := 0; n < len(page); n += 32 {
				binary.LittleEndian.PutUint64(page[n:], 0xffff888000000000|uint64(random.IntN(1<<28))<<4)
				binary.LittleEndian.PutUint32(page[n+8:], uint32(random.IntN(1000)))
				binary.LittleEndian.PutUint64(page[n+16:], 0xffff888000000000|uint64(random.IntN(1<<12))<<6)
			}
		default:
			for n := 0; n < len(page); n += 8 {
				binary.LittleEndian.PutUint64(page[n:], random.Uint64())
			}
		}
		if !seen[string(page)] {
			seen[string(page)] = true
			memory = append(memory, page)
		}
	}
	return memory
}

// dumped returns distinct pages of a file, none of zeros, in runs of 64 from all over it.
func dumped(b *testing.B, name string, count int) [][]byte {
	b.Helper()
	file, err := os.ReadFile(name)
	if err != nil {
		b.Fatal(err)
	}
	seen := map[string]bool{string(make([]byte, pages.Size)): true}
	var memory [][]byte
	for ; len(file) >= pages.Size; file = file[pages.Size:] {
		if page := file[:pages.Size:pages.Size]; !seen[string(page)] {
			seen[string(page)] = true
			memory = append(memory, page)
		}
	}
	if len(memory) < count {
		b.Fatalf("%s has %d pages, not %d", name, len(memory), count)
	}
	const run = 64
	var some [][]byte
	for n := range count / run {
		at := n * (len(memory) - run) / (count / run)
		at -= at % run
		some = append(some, memory[at:at+run]...)
	}
	return some
}

// BenchmarkPipeline is what one core does with new pages from Put to Acked: sorting,
// search for the same content, compression, TLS. With little memory contents are forgotten
// when they were delivered, and identities made. Nothing is offered, as to most guests.
func BenchmarkPipeline(b *testing.B) {
	const count = 4096
	memory := guestMemory(b, count)
	for level := encode.Off; int(level) < encode.Levels; level++ {
		for _, room := range []int{count, count / 16} {
			b.Run(fmt.Sprintf("%v/memory=%dMiB", level, room*pages.Size>>20), func(b *testing.B) {
				buffer := make([]byte, room*pages.Size)
				lane := secured(b)
				var out, in uint64
				var busy time.Duration
				b.SetBytes(count * pages.Size)
				b.ResetTimer()
				for range b.N {
					at := 0
					store := pages.New(count, pages.NewArena(int64(len(buffer)), func(n int) ([]byte, error) {
						at += n
						return buffer[at-n : at], nil
					}, nil))
					from := processor(b)
					counts := pass(b, store, encode.NewCoder(store, new(encode.Offered)), memory, level, lane)
					busy += processor(b) - from
					in, out = in+counts.In, out+counts.Out
				}
				b.ReportMetric(float64(in)/float64(out), "ratio")
				b.ReportMetric(float64(in)/1e6/busy.Seconds(), "MB/cpu-s")
			})
		}
	}
}

// processor returns the processor time that this process has used: others do not count.
func processor(b *testing.B) time.Duration {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// write writes in pieces, as package paths does.
func write(lane io.Writer, message []byte) error {
	for len(message) > 0 {
		n := min(len(message), 32<<10)
		if _, err := lane.Write(message[:n]); err != nil {
			return err
		}
		message = message[n:]
	}
	return nil
}

// secured is a TLS 1.3 connection whose bytes go nowhere once it is made.
func secured(b *testing.B) io.Writer {
	key, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(crand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		b.Fatal(err)
	}
	here, there := net.Pipe()
	end := &nowhere{Conn: here}
	server := tls.Server(there, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, SessionTicketsDisabled: true})
	shaken := make(chan error, 1)
	go func() { shaken <- server.Handshake() }()
	client := tls.Client(end, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}) //nolint:gosec // it speaks to itself
	if err := errors.Join(client.Handshake(), <-shaken); err != nil {
		b.Fatal(err)
	}
	end.made = true
	b.Cleanup(func() { here.Close(); there.Close() })
	return client
}

// nowhere is a connection that takes everything once it is made.
type nowhere struct {
	net.Conn
	made bool
}

func (n *nowhere) Write(p []byte) (int, error) {
	if n.made {
		return len(p), nil
	}
	return n.Conn.Write(p)
}

func pass(b *testing.B, store *pages.Store, coder *encode.Coder, memory [][]byte, level encode.Level, lane io.Writer) encode.Counts {
	var sum encode.Counts
	var body, message []byte
	for n, page := range memory {
		if err := store.Put(uint64(n), page); err != nil {
			b.Fatal(err)
		}
		if n%pages.MaxPages != pages.MaxPages-1 {
			continue
		}
		f, err := store.Take(pages.MaxPages)
		if err != nil {
			b.Fatal(err)
		}
		var counts encode.Counts
		body, counts = coder.Encode(body[:0], f, level)
		store.Sent(f)
		if message = wire.AppendFrame(message[:0], f.Number, body); write(lane, message) != nil {
			b.Fatal("the lane broke")
		}
		if err := store.Acked(f.Number); err != nil {
			b.Fatal(err)
		}
		if counts.Pages[pages.Same]+counts.Pages[pages.Reference] > 0 {
			b.Fatal("pages are not distinct")
		}
		sum.In, sum.Out = sum.In+counts.In, sum.Out+counts.Out
	}
	return sum
}

// BenchmarkDecode is the other end, into a mirror in memory.
func BenchmarkDecode(b *testing.B) {
	memory := guestMemory(b, 1024)
	for _, level := range []encode.Level{encode.S2, encode.Zstd1, encode.Zstd3, encode.Zstd7} {
		b.Run(level.String(), func(b *testing.B) {
			coder := encode.NewCoder(nil, nil)
			var bodies [][]byte
			for at := 0; at < len(memory); at += pages.MaxPages {
				f := &pages.Frame{Number: 1}
				for n := at; n < at+pages.MaxPages; n++ {
					f.Pages = append(f.Pages, pages.Page{Number: uint64(n), Data: memory[n]})
				}
				body, _ := coder.Encode(nil, f, level)
				bodies = append(bodies, body)
			}
			m := &flat{data: make([]byte, len(memory)*pages.Size), version: make([]uint64, len(memory))}
			d := encode.NewDecoder(uint64(len(memory)), m, nil)
			b.SetBytes(int64(len(memory) * pages.Size))
			frame := uint64(1)
			for b.Loop() {
				for _, body := range bodies {
					if _, err := d.Decode(frame, body); err != nil {
						b.Fatal(err)
					}
				}
				frame++
			}
		})
	}
}

type flat struct {
	data    []byte
	version []uint64
}

func (m *flat) Read(page uint64, dst []byte) (uint64, error) {
	copy(dst[:pages.Size], m.data[page*pages.Size:])
	return m.version[page], nil
}

func (m *flat) Write(page, version uint64, data []byte) (bool, error) {
	if version <= m.version[page] {
		return false, nil
	}
	m.version[page] = version
	copy(m.data[page*pages.Size:(page+1)*pages.Size], data)
	return true, nil
}

func (m *flat) WriteRun(first, version uint64, data []byte) (uint64, error) {
	return runOf(m, first, version, data)
}
