package describe

import (
	"strings"
	"testing"
)

// looks are what a person is told of a guest, a line each.
func looks(t *testing.T, r Running) string {
	t.Helper()
	found, err := Of(r)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(found.Look, "\n")
}

// TestStartedAgain: a person is told what may start the QEMU that ends here, and of nothing where nothing is known to.
func TestStartedAgain(t *testing.T) {
	r := running(strings.Fields("-netdev tap,id=net0,fd=5")...)
	if got := looks(t, r); strings.Contains(got, "second copy") {
		t.Errorf("nothing starts it again: %s", got)
	}
	r.Facts.Unit = "web.service"
	if got := looks(t, r); !strings.Contains(got, "web.service runs its QEMU") || !strings.Contains(got, "second copy") {
		t.Error(got)
	}
}

// TestDevicesOfThisHost: what a guest has of its host's own devices is told of, but for those that every host has.
func TestDevicesOfThisHost(t *testing.T) {
	for words, want := range map[string]string{
		`-device {"driver":"usb-host","hostdevice":"/dev/bus/usb/001/004","id":"h"}`: "-device usb-host (hostdevice=/dev/bus/usb/001/004): ",
		"-device usb-host,vendorid=0x0529,productid=0x0001,id=h,bus=usb.0":           "-device usb-host (vendorid=0x0529,productid=0x0001): ",
		"-device usb-host,id=h,hostbus=1,hostaddr=4":                                 "-device usb-host (hostbus=1,hostaddr=4): ",
		"-device usb-host,id=h,hostbus=1,hostport=4":                                 "-device usb-host (hostbus=1,hostport=4): ",
		"-serial /dev/ttyUSB0":                                            "have the same: /dev/ttyUSB0",
		"-chardev serial,id=a,path=/dev/ttyS1":                            "have the same: /dev/ttyS1",
		"-object input-linux,id=a,evdev=/dev/input/event3":                "have the same: /dev/input/event3",
		"-mem-path /dev/hugepages1G/web":                                  "have the same: /dev/hugepages1G/web",
		"-object rng-random,id=a,filename=/dev/hwrng":                     "have the same: /dev/hwrng",
		"-object rng-random,id=a,filename=/dev/random":                    "",
		"-object rng-random,id=a,filename=/dev/urandom -serial /dev/null": "",
		"-mem-path /dev/hugepages -accel kvm,device=/dev/kvm":             "",
		"-mem-path /dev/shm/":                                             "",
	} {
		got := looks(t, running(strings.Fields("-netdev tap,id=net0,fd=5 "+words)...))
		if want == "" && (strings.Contains(got, "have the same") || strings.Contains(got, "/dev/")) || !strings.Contains(got, want) {
			t.Errorf("%s: want %q in\n%s", words, want, got)
		}
		if strings.Contains(got, "have the same: /dev/bus") {
			t.Errorf("%s: told twice:\n%s", words, got)
		}
		if strings.Contains(got, "or QEMU does not start there") != (strings.Contains(words, "hostdevice") || strings.HasSuffix(words, "hostaddr=4")) {
			t.Errorf("%s: whether QEMU starts without it is not told in\n%s", words, got)
		}
	}
}

// TestSharedDisk: a person is told of a disk that others write, which the check refuses.
func TestSharedDisk(t *testing.T) {
	r := running(strings.Fields("-netdev tap,id=net0,fd=5")...)
	r.Facts.Shared = []string{"data"}
	if got := looks(t, r); !strings.Contains(got, "others may write its disk data, too (share-rw=on)") {
		t.Error(got)
	}
}

// TestConfined: a person is told of a QEMU that may less here than where the guest comes to.
func TestConfined(t *testing.T) {
	r := running(strings.Fields("-netdev tap,id=net0,fd=5")...)
	const told = "as root, not confined"
	if got := looks(t, r); strings.Contains(got, told) {
		t.Errorf("it is the agent's: %s", got)
	}
	r.Facts.Apart = true
	if got := looks(t, r); !strings.Contains(got, told) {
		t.Error(got)
	}
	r.Facts.Apart, r.User = false, 1000
	if got := looks(t, r); !strings.Contains(got, told) {
		t.Errorf("it is that of who asked, who is not root: %s", got)
	}
}
