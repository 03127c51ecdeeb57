package qemu_test

import (
	"slices"
	"testing"
)

// TestFactsTellOfSharedDisks: those that others may write, too, as this guest may.
func TestFactsTellOfSharedDisks(t *testing.T) {
	words := []string{"-machine", "q35", "-accel", "tcg", "-m", "32", "-device", "virtio-scsi-pci", "-usb"}
	for id, device := range map[string]string{
		"alone": "virtio-blk-pci,drive=alone", "ours": "virtio-blk-pci,share-rw=on,drive=ours", "read": "scsi-hd,share-rw=on,drive=read",
		"stick": "usb-storage,share-rw=on,drive=stick", "theirs": "usb-storage,id=us,drive=theirs",
	} {
		readOnly := map[bool]string{true: "on", false: "off"}[id == "read"]
		words = append(words, "-blockdev", "driver=raw,node-name="+id+",read-only="+readOnly+",file.driver=file,file.filename="+sparse(t, nil, 0), "-device", device)
	}
	words = append(words, "-drive", "if=none,id=drive,format=raw,file="+sparse(t, nil, 0), "-device", "scsi-hd,id=hd,share-rw=on,drive=drive")
	f, err := theirs(t, words...).Facts(t.Context())
	slices.Sort(f.Shared)
	if err != nil || !slices.Equal(f.Shared, []string{"drive", "ours", "stick"}) {
		t.Errorf("%q, %v; want drive, ours and stick", f.Shared, err)
	}
}
