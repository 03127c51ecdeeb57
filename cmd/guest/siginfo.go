package main

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// siginfoPID reads si_pid, which x/sys leaves inside of the union: it is the first
// of it, after three 32-bit fields and (on 64-bit machines) padding.
func siginfoPID(info *unix.Siginfo) int32 {
	return *(*int32)(unsafe.Add(unsafe.Pointer(info), 12+unsafe.Sizeof(uintptr(0))-4))
}
