package config

import (
	"fmt"
	"os"
)

// Missing says what the file names and this host has not, or not yet, and nobody would miss before it is needed: hooks, of
// which an agent calls those that are there, and the fence, which is called on a bad day.
func (c *Config) Missing() (all []string) {
	if c.hooksNamed {
		if info, err := os.Stat(c.Hooks.Dir); err != nil || !info.IsDir() {
			all = append(all, fmt.Sprintf("hooks.dir %s: no such directory; no hook in it is called", c.Hooks.Dir))
		}
	}
	if c.Fence == "" {
		return all
	}
	switch info, err := os.Stat(c.Fence); {
	case err != nil || info.IsDir():
		all = append(all, fmt.Sprintf("fence %s: no such file; no host is proved off by it", c.Fence))
	case info.Mode().Perm()&0o111 == 0:
		all = append(all, fmt.Sprintf("fence %s: not executable; no host is proved off by it", c.Fence))
	}
	return all
}
