package compare

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"godwit/migration"
	"godwit/vm/qemu"
)

// memoryHere is a block of this process's, of three pages, as if it were a guest's in QEMU, its bytes, and what takes
// them away. Of the second page bytes from 0x100 on are KVM's time.
func memoryHere(t *testing.T) (memory *qemu.Memory, data []byte, end func()) {
	t.Helper()
	const size = 3 * qemu.PageSize
	file, err := unix.MemfdCreate("guest", 0)
	if err == nil {
		t.Cleanup(func() { unix.Close(file) })
		err = unix.Ftruncate(file, size)
	}
	if err == nil {
		data, err = unix.Mmap(file, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(data) }) //nolint:errcheck // the test's own
	for i := range data {
		data[i] = byte(i)
	}
	setTime(data, 2, 1795961799, 7)
	at := int64(uintptr(unsafe.Pointer(&data[0])))
	memory = &qemu.Memory{PID: os.Getpid(), Blocks: []qemu.Block{{Name: "pc.ram", At: at, Size: size}}}
	return memory, data, func() {
		if err := unix.Ftruncate(file, 0); err != nil {
			t.Error(err)
		}
	}
}

// setTime is what KVM does.
func setTime(data []byte, version, seconds, nanoseconds uint32) {
	at := data[qemu.PageSize+0x100:]
	binary.LittleEndian.PutUint32(at, version)
	binary.LittleEndian.PutUint32(at[4:], seconds)
	binary.LittleEndian.PutUint32(at[8:], nanoseconds)
}

// TestPageOfKVM: KVM writes the time into a page of the guest that it loads. That is no difference; what else is in
// that page is one, and so is another page.
func TestPageOfKVM(t *testing.T) {
	t.Setenv(Variable, t.TempDir())
	const second = "1 of 3 pages differ, the first at pc.ram+0x1000"
	for name, c := range map[string]struct {
		change   func(data []byte)
		emulated bool
		ended    bool // the source's QEMU, whose memory is unknown then
		want     string
	}{
		"the time":                  {change: func(d []byte) { setTime(d, 4, 1795961800, 999999999) }},
		"of two vCPUs":              {change: func(d []byte) { setTime(d, 6, 1795961799, 8) }},
		"of 128 vCPUs":              {change: func(d []byte) { setTime(d, 2+2*128, 1795961799, 8) }},
		"of 512 vCPUs":              {change: func(d []byte) { setTime(d, 2+2*512, 1795961800, 8) }},
		"none":                      {change: func([]byte) {}},
		"emulated":                  {change: func(d []byte) { setTime(d, 4, 1795961800, 8) }, emulated: true, want: second},
		"a lost page":               {change: func(d []byte) { d[qemu.PageSize+5]++ }, want: second},
		"its last bytes":            {change: func(d []byte) { d[2*qemu.PageSize-1]++ }, want: second},
		"the time, and more behind": {change: func(d []byte) { setTime(d, 4, 1795961800, 8); d[qemu.PageSize+0x10c]++ }, want: second},
		"the time, and more before": {change: func(d []byte) { setTime(d, 4, 1795961800, 8); d[qemu.PageSize+0xff]++ }, want: second},
		"half a time":               {change: func(d []byte) { setTime(d, 5, 1795961800, 8) }, want: second},
		"an older time":             {change: func(d []byte) { setTime(d, 0, 1795961800, 8) }, want: second},
		"no time":                   {change: func(d []byte) { setTime(d, 4, 1795961800, 1e9) }, want: second},
		"the time and a lost page":  {change: func(d []byte) { setTime(d, 4, 1795961800, 8); d[2*qemu.PageSize]++ }, want: "2 of 3 pages differ, the first at pc.ram+0x1000, pc.ram+0x2000"},
		"nobody can say":            {change: func(d []byte) { d[qemu.PageSize+5]++ }, ended: true},
	} {
		t.Run(name, func(t *testing.T) {
			there, _, end := memoryHere(t)
			here, data, _ := memoryHere(t)
			c.change(data)
			plan := migration.Plan{ID: strings.ReplaceAll(name, " ", "-"), Guest: "web", To: "sanjose"}
			if err := Left(t.Context(), plan.ID, there); err != nil {
				t.Fatal(err)
			}
			if c.ended {
				end()
			}
			err := Arrived(t.Context(), plan, here, false, !c.emulated)
			if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			written, err := os.ReadFile(filepath.Join(dir(), plan.ID+".json"))
			var found Found // as the lab reads it
			if err != nil || json.Unmarshal(written, &found) != nil || !strings.HasSuffix(found.Problem(), c.want) || (found.Problem() == "") != (c.want == "") {
				t.Errorf("%s, %v, %q", written, err, found.Problem())
			}
			if found.Pages != 3 || (found.Time != "") != (c.want == "" && name != "none") {
				t.Errorf("%+v", found)
			}
		})
	}
}
