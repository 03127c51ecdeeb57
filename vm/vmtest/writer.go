// Package vmtest makes a guest for tests that boots in a second and can tell when its
// memory was damaged.
package vmtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// Writer is a guest of 150 bytes, without an operating system. It fills an area of memory
// with noise, then passes over it for ever: in every page it checks the pass's number in the
// first word and writes the next. After each pass it writes '.' to the serial port, and 'X'
// for every page that held another number: a lost or an old version of a page.
type Writer struct {
	Start uint32 // first byte of the area; at least 2 MiB, a multiple of 4096
	Size  uint32 // bytes, a multiple of 4096, at least 4096
	Hot   uint32 // bytes at its beginning that are passed over; 0 is all
	Delay uint32 // turns of an empty loop after each page; 0 is 1
}

const loadAt = 1 << 20

// Image returns the guest as a kernel by the Multiboot specification 0.6.96 (address fields,
// no video), which QEMU loads with -kernel.
func (w Writer) Image() []byte {
	const magic, flags, header = 0x1badb002, 0x10000, 32
	code := w.code()
	var b bytes.Buffer
	for _, field := range []uint32{
		magic, flags, 1<<32 - magic - flags, // the third makes the sum 0
		loadAt, loadAt, uint32(loadAt + header + len(code)), 0, loadAt + header,
	} {
		_ = binary.Write(&b, binary.LittleEndian, field)
	}
	b.Write(code)
	return b.Bytes()
}

// code is 32-bit x86 with flat segments and interrupts off, as the loader leaves it.
func (w Writer) code() []byte {
	end := w.Start + w.Size
	hot := end
	if w.Hot != 0 {
		hot = w.Start + w.Hot
	}
	var a assembler
	// fill the area with xorshift32
	a.op(0xbf).word(w.Start)         // mov edi, start
	a.op(0xb8).word(0x12345678)      // mov eax, seed
	a.label("fill")                  //
	a.op(0x89, 0xc2, 0xc1, 0xe2)     // mov edx, eax; shl edx,
	a.op(13, 0x31, 0xd0)             //   13; xor eax, edx
	a.op(0x89, 0xc2, 0xc1, 0xea)     // mov edx, eax; shr edx,
	a.op(17, 0x31, 0xd0)             //   17; xor eax, edx
	a.op(0x89, 0xc2, 0xc1, 0xe2)     // mov edx, eax; shl edx,
	a.op(5, 0x31, 0xd0)              //   5; xor eax, edx
	a.op(0x89, 0x07)                 // mov [edi], eax
	a.op(0x83, 0xc7, 4)              // add edi, 4
	a.op(0x81, 0xff).word(end)       // cmp edi, end
	a.jump(0x72, "fill")             // jb fill
	a.op(0xbf).word(w.Start)         // mov edi, start
	a.label("zero")                  //
	a.op(0xc7, 0x07).word(0)         // mov dword [edi], 0
	a.op(0x81, 0xc7).word(4096)      // add edi, 4096
	a.op(0x81, 0xff).word(hot)       // cmp edi, hot
	a.jump(0x72, "zero")             // jb zero
	a.op(0x31, 0xdb)                 // xor ebx, ebx
	a.op(0x66, 0xba, 0xf8, 0x03)     // mov dx, 0x3f8
	a.label("pass")                  //
	a.op(0xbf).word(w.Start)         // mov edi, start
	a.label("page")                  //
	a.op(0x39, 0x1f)                 // cmp [edi], ebx
	a.jump(0x74, "good")             // je good
	a.op(0xb0, 'X', 0xee)            // mov al, 'X'; out dx, al
	a.label("good")                  //
	a.op(0x8d, 0x43, 1)              // lea eax, [ebx+1]
	a.op(0x89, 0x07)                 // mov [edi], eax
	a.op(0xb9).word(max(w.Delay, 1)) // mov ecx, delay
	a.op(0xe2, 0xfe)                 // loop $
	a.op(0x81, 0xc7).word(4096)      // add edi, 4096
	a.op(0x81, 0xff).word(hot)       // cmp edi, hot
	a.jump(0x72, "page")             // jb page
	a.op(0x43)                       // inc ebx
	a.op(0xb0, '.', 0xee)            // mov al, '.'; out dx, al
	a.jump(0xeb, "pass")             // jmp pass
	return a.done()
}

// assembler puts in the distances of short jumps.
type assembler struct {
	code   []byte
	labels map[string]int
	jumps  map[int]string // where a distance belongs
}

func (a *assembler) op(b ...byte) *assembler {
	a.code = append(a.code, b...)
	return a
}

func (a *assembler) word(v uint32) { a.code = binary.LittleEndian.AppendUint32(a.code, v) }

func (a *assembler) label(name string) {
	if a.labels == nil {
		a.labels, a.jumps = map[string]int{}, map[int]string{}
	}
	a.labels[name] = len(a.code)
}

func (a *assembler) jump(op byte, to string) {
	a.op(op, 0)
	a.jumps[len(a.code)-1] = to
}

func (a *assembler) done() []byte {
	for at, to := range a.jumps {
		a.code[at] = byte(int8(a.labels[to] - at - 1))
	}
	return a.code
}

// Passes counts the passes in a guest's serial log.
func Passes(log string) (int, error) {
	text, err := os.ReadFile(log)
	if err != nil {
		return 0, err
	}
	if i := bytes.IndexByte(text, 'X'); i >= 0 {
		return 0, fmt.Errorf("guest found %d damaged pages, the first after %d passes", bytes.Count(text, []byte("X")), i)
	}
	return strings.Count(string(text), "."), nil
}

// AwaitPasses waits until a guest has made n more passes than now, without damage.
func AwaitPasses(log string, n int, limit time.Duration) error {
	first, err := Passes(log)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for begun := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		now, err := Passes(log)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if now >= first+n {
			return nil
		}
		if time.Since(begun) > limit {
			return fmt.Errorf("guest made %d passes in %v, not %d", now-first, limit, n)
		}
	}
}
