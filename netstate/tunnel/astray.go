package tunnel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Astray lists tunnels of this namespace whose process lives and whose control socket
// is gone: nobody can ask them, extend them or take them down by it any more. Those that
// have one in another directory than dir are another agent's and are not listed.
func Astray(dir string) ([]Status, error) {
	here, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	folders, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	var out []Status
	for _, folder := range folders {
		name, ok := keeperOf(folder)
		if !ok {
			continue
		}
		if ns, err := os.Readlink(folder + "/ns/net"); err != nil || ns != here {
			continue
		}
		if _, err := os.Stat(controlOf(folder, name)); err == nil {
			continue
		}
		s := Status{Name: name}
		if _, err := fmt.Sscanf(folder, "/proc/%d", &s.PID); err == nil {
			out = append(out, s)
		}
	}
	return out, nil
}

// keeperOf is the tunnel of a process, by its command line.
func keeperOf(folder string) (name string, ok bool) {
	line, err := os.ReadFile(folder + "/cmdline")
	if err != nil {
		return "", false
	}
	words := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
	if len(words) == 3 && words[1] == "_tunnel" {
		return words[2], true
	}
	return "", false
}

// controlOf is the path of a tunnel's control socket as its process bound it, by
// proc_net_unix(5); "" where that is not known.
func controlOf(folder, name string) string {
	table, err := os.ReadFile(folder + "/net/unix")
	if err != nil {
		return ""
	}
	for _, line := range strings.Split(string(table), "\n") {
		if i := strings.IndexByte(line, '/'); i >= 0 && filepath.Base(line[i:]) == name+".sock" {
			return line[i:]
		}
	}
	return ""
}

// EndAstray ends the process of a tunnel that Astray lists; its device goes with it.
func EndAstray(ctx context.Context, dir, name string) error {
	found, err := Astray(dir)
	for _, s := range found {
		if s.Name != name {
			continue
		}
		if kerr := syscall.Kill(s.PID, syscall.SIGTERM); kerr != nil && !errors.Is(kerr, syscall.ESRCH) {
			err = errors.Join(err, kerr)
			continue
		}
		err = errors.Join(err, vanish(ctx, s.PID, name))
	}
	return err
}
