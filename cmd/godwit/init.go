package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"godwit/agent/config"
	"godwit/agent/peer"
	"godwit/agent/statefile"
	"godwit/internal/oneline"
)

func newInit() *cobra.Command {
	var dir string
	var force bool
	c := &cobra.Command{
		Use: "init HOST…", Short: "make a fleet's CA and a certificate for each host",
		Long: `Makes DIR/ca.pem, and DIR/HOST.pem with DIR/HOST.key for every host named. Copy
ca.pem and the host's two files to the host, and name them in its agent.yaml; see
docs/agent.md. The CA's key is not kept: to add hosts later, make all anew.`,
		Example: "  godwit init montreal dallas sanjose --out fleet",
		Args: func(c *cobra.Command, hosts []string) error {
			if len(hosts) == 0 {
				return wrongly(c, errors.New("takes the names of the fleet's hosts"))
			}
			return nil
		},
		RunE: func(c *cobra.Command, hosts []string) error {
			for i, h := range hosts {
				if h == "ca" || !config.IsHostName(h) || slices.Contains(hosts[:i], h) {
					return usageError{fmt.Errorf("init %q: a host's name is %s; not ca, and given once", h, config.HostNames)}
				}
			}
			worthless, err := makeFleet(dir, hosts, time.Now(), force)
			switch {
			case errors.Is(err, errFleetThere):
				return usageError{fmt.Errorf("init %s: %w", dir, err)}
			case errors.As(err, new(longAgo)):
				return fmt.Errorf("init: %w", err)
			case err != nil:
				return fmt.Errorf("init: make certificates in %s: %w; name another directory by --out", dir, err)
			}
			if asJSON(c) {
				told := map[string]any{"dir": dir, "hosts": hosts}
				if len(worthless) > 0 {
					told["worthless"] = worthless
				}
				return printJSON(c.OutOrStdout(), told)
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s in %s; each host gets its ca.pem, HOST.pem and HOST.key\n", oneline.Many(len(hosts), "certificate"), dir)
			if of := strings.Join(worthless, ", "); err == nil && of != "" {
				_, err = fmt.Fprintf(c.OutOrStdout(), "%s %s: their certificates in %s are of an earlier CA, and worthless by this one; name all hosts of the fleet at once, or remove them\n",
					strings.TrimPrefix(oneline.Many(len(worthless), "host"), fmt.Sprint(len(worthless), " ")), of, dir)
			}
			return err
		},
	}
	c.Flags().StringVar(&dir, "out", "fleet", "directory")
	c.Flags().BoolVar(&force, "force", false, "replace a fleet's CA and certificates that are there")
	return c
}

var errFleetThere = errors.New("a fleet's CA is there, and a new one would not know its certificates; name another directory by --out, or --force")

// firstYear is the first in which there was Godwit: a clock that shows one before is wrong, as where a battery is missing.
const firstYear = 2026

// longAgo is what a clock shows that is wrong for sure.
type longAgo time.Time

func (at longAgo) Error() string {
	return fmt.Sprintf("this host's clock shows %s UTC, and what is made is good until a year after that; set the clock right first", time.Time(at).UTC().Format(time.DateTime))
}

// makeFleet makes a CA, and a certificate for each host, in a directory; by force also where a fleet's is, and tells
// then of which other hosts certificates are there that are worthless now. On error there is no CA that was not there
// before, as it comes last, when all else is in its place, and no directory.
func makeFleet(dir string, hosts []string, now time.Time, force bool) (worthless []string, err error) {
	if now.Year() < firstYear {
		return nil, longAgo(now)
	}
	made := missing(dir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, errors.Join(err, removeEmpty(made))
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, removeEmpty(made))
		}
	}()
	unlock, err := aloneIn(dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if _, err := os.Stat(filepath.Join(dir, "ca.pem")); err == nil && !force {
		return nil, errFleetThere
	}
	if err := fillFleet(dir, hosts, now); err != nil {
		return nil, err
	}
	return worthlessIn(dir, hosts), nil
}

// fillFleet makes them beside what is there, and puts them in its place.
func fillFleet(dir string, hosts []string, now time.Time) (err error) {
	made, err := os.MkdirTemp(dir, halfFleet)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(made)) }()
	ca, err := peer.NewFleetCA(made, now)
	if err != nil {
		return err
	}
	var files []string
	for _, h := range hosts {
		if err := ca.Issue(h, now); err != nil {
			return err
		}
		files = append(files, h+".pem", h+".key")
	}
	for _, f := range append(files, "ca.pem") {
		if err := os.Rename(filepath.Join(made, f), filepath.Join(dir, f)); err != nil {
			return err
		}
	}
	return nil
}

// missing are dir and what it is in, as far as they are not there.
func missing(dir string) (out []string) {
	for dir = filepath.Clean(dir); ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
			return out
		}
		out = append(out, dir)
	}
}

// removeEmpty removes directories, the innermost first, up to one in which somebody else has something by now.
func removeEmpty(dirs []string) error {
	for _, d := range dirs {
		err := os.Remove(d)
		if errors.Is(err, unix.ENOTEMPTY) {
			return nil
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// worthlessIn are the hosts but those of whom a fleet's certificate is in dir: it is of an earlier CA.
func worthlessIn(dir string, but []string) (hosts []string) {
	for _, path := range statefile.Matching(dir, "*.pem") {
		host := strings.TrimSuffix(filepath.Base(path), ".pem")
		if text, err := os.ReadFile(path); err == nil && !slices.Contains(but, host) && peer.IsOf(text, host) {
			hosts = append(hosts, host)
		}
	}
	slices.Sort(hosts)
	return hosts
}

// halfFleet begins the name of a directory in which a fleet is made: nobody else's has such a name.
const halfFleet = ".godwit-init-"

// aloneIn keeps another init out of dir until unlock, whose certificates would be mixed with these, and removes what
// one that was killed has left there.
func aloneIn(dir string) (unlock func(), err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) { // not every file system locks directories
		d.Close()
		return nil, errors.New("another godwit init is making certificates there; wait for it")
	}
	for _, left := range statefile.Matching(dir, halfFleet+"*") {
		err = errors.Join(err, os.RemoveAll(left))
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	return func() { d.Close() }, nil
}
