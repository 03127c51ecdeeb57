package agent

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"godwit/agent/statefile"
)

// A guest writes to its console what it likes, for months, and QEMU to its log what the guest has it say; so does a tunnel that stands for
// as long, while its uplink is down. All lie in the runtime directory: in memory on most hosts, and with what all other guests need.
const (
	logMost = 16 << 20 // bytes that such a file may take
	logLook = 10 * time.Second
)

// boundLogs keeps them short, until ctx ends.
func (a *Agent) boundLogs(ctx context.Context) {
	for sleep(ctx, logLook) {
		logs := statefile.Matching(filepath.Join(a.config.Run, "guests"), "*/*.log")
		for _, path := range append(logs, statefile.Matching(a.tunnelDir(), "*.log")...) {
			if err := boundLog(path); err != nil && !errors.Is(err, os.ErrNotExist) {
				a.log.Warn("bound log", "file", path, "error", err)
			}
		}
	}
}

// boundLog gives back what a log takes beyond its end, where that is too much. Who writes it goes on at the same place: what
// was there before is a hole. Where the file system makes none it begins anew.
func boundLog(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
		return err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFREG || stat.Blocks*512 <= logMost || stat.Size <= logKept {
		return nil
	}
	err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, stat.Size-logKept)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return f.Truncate(0)
	}
	return err
}

// keptMost is how much the logs of guests that left may take, bytes: each move leaves some, and nobody tidies up.
const keptMost = 256 << 20

// boundKept removes of the logs that are kept in dir those that are older than as many bytes of others.
func boundKept(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var logs []os.FileInfo
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && info.Mode().IsRegular() && (strings.HasSuffix(e.Name(), "-serial.log") || strings.HasSuffix(e.Name(), "-qemu.log")) {
			logs = append(logs, info)
		}
	}
	now := time.Now()
	written := func(log os.FileInfo) time.Time {
		if at := log.ModTime(); !at.After(now) {
			return at
		}
		return time.Time{} // by a clock that has been set back since: before all that was written after that
	}
	slices.SortFunc(logs, func(a, b os.FileInfo) int {
		return cmp.Or(written(b).Compare(written(a)), b.ModTime().Compare(a.ModTime()))
	})
	sum := int64(0)
	for _, info := range logs {
		if sum += info.Size(); sum <= keptMost {
			continue
		}
		if rerr := os.Remove(filepath.Join(dir, info.Name())); !errors.Is(rerr, os.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
	}
	return err
}
