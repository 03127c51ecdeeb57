package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
			switch err := makeFleet(dir, hosts, time.Now(), force); {
			case errors.Is(err, errFleetThere):
				return usageError{fmt.Errorf("init %s: %w", dir, err)}
			case err != nil:
				return fmt.Errorf("init: make certificates in %s: %w; name another directory by --out", dir, err)
			}
			if asJSON(c) {
				return printJSON(c.OutOrStdout(), map[string]any{"dir": dir, "hosts": hosts})
			}
			_, err := fmt.Fprintf(c.OutOrStdout(), "%s in %s; each host gets its ca.pem, HOST.pem and HOST.key\n", oneline.Many(len(hosts), "certificate"), dir)
			return err
		},
	}
	c.Flags().StringVar(&dir, "out", "fleet", "directory")
	c.Flags().BoolVar(&force, "force", false, "replace a fleet's CA and certificates that are there")
	return c
}

var errFleetThere = errors.New("a fleet's CA is there, and a new one would not know its certificates; name another directory by --out, or --force")

// makeFleet makes a CA, and a certificate for each host, in a directory; by force also where a fleet's is. On error there is no CA that was
// not there before: it comes last, when all else is in its place.
func makeFleet(dir string, hosts []string, now time.Time, force bool) (err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	unlock, err := aloneIn(dir)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := os.Stat(filepath.Join(dir, "ca.pem")); err == nil && !force {
		return errFleetThere
	}
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

// halfFleet begins the name of a directory in which a fleet is made: nobody else's has such a name.
const halfFleet = ".godwit-init-"

// aloneIn keeps another init out of dir until unlock, whose certificates would be mixed with these, and removes what one that was killed
// has left there.
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
