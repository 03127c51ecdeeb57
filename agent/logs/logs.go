// Package logs keeps what guests say to their consoles, and their QEMUs and tunnels to logs: short while it is written,
// and of guests that left the end, next to the history.
//
// A guest writes to its console what it likes, for months, and QEMU to its log what the guest has it say; so does a
// tunnel that stands for as long, while its uplink is down. All lie in the runtime directory: in memory on most hosts,
// and with what all other guests need.
package logs

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"godwit/agent/statefile"
	"godwit/internal/clock"
)

const (
	most = 16 << 20 // bytes that a file that is written may take
	look = 10 * time.Second
	// kept is how much of a log is kept, bytes: a guest writes to its console what it likes.
	kept = 1 << 20
	// keptMost is how much the logs of guests that left may take, bytes: each move leaves some, and nobody tidies up.
	keptMost = 256 << 20
)

// Bound keeps short what is written in GUESTS/*/*.log and TUNNELS/*.log, until ctx ends.
func Bound(ctx context.Context, guests, tunnels string, log *slog.Logger) {
	for clock.Sleep(ctx, look) {
		logs := statefile.Matching(guests, "*/*.log")
		for _, path := range append(logs, statefile.Matching(tunnels, "*.log")...) {
			if err := boundLog(path); err != nil && !errors.Is(err, os.ErrNotExist) {
				log.Warn("bound log", "file", path, "error", err)
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
	if stat.Mode&unix.S_IFMT != unix.S_IFREG || stat.Blocks*512 <= most || stat.Size <= kept {
		return nil
	}
	err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, stat.Size-kept)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return f.Truncate(0)
	}
	return err
}

// Keep copies the end of a guest's console and QEMU's words, which are in dir, to another directory, under names that
// begin with dir's own. Of what is kept there the oldest goes, where that is too much.
func Keep(dir, to string, log *slog.Logger) {
	for _, name := range []string{"serial.log", "qemu.log"} {
		data, err := End(filepath.Join(dir, name), kept)
		if err != nil || len(data) == 0 {
			continue
		}
		if err := os.MkdirAll(to, 0o700); err == nil {
			os.WriteFile(filepath.Join(to, filepath.Base(dir)+"-"+name), data, 0o600) //nolint:errcheck // a log that could not be kept is not worth an error
		}
	}
	if err := boundKept(to); err != nil {
		log.Warn("bound the logs of guests that left", "error", err)
	}
}

// End reads the last bytes of a file, most at most.
func End(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-most), most))
}

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
