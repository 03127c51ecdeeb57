package lastingtest

import "syscall"

// WithoutDescriptors does something while this process can open nothing (EMFILE, RLIMIT_NOFILE of getrlimit(2)). The
// error is of the limit.
func WithoutDescriptors(do func()) error {
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		return err
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 0, Max: before.Max}); err != nil {
		return err
	}
	do()
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before)
}
