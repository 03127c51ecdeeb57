package config

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
)

// Image is what guests of an image boot: of `tiny`, or of a name in Config.Images.
type Image struct {
	Kernel  string `yaml:"kernel,omitempty"`
	Initrd  string `yaml:"initrd,omitempty"`
	Cmdline string `yaml:"cmdline,omitempty"`
	Root    string `yaml:"root,omitempty"` // raw image of a read-only disk, the same on every host
}

// ImageOf finds what guests of that image boot; "" is tiny. Kernel is "" where this host
// has none.
func (c *Config) ImageOf(name string) Image {
	if name == "" || name == TinyImage {
		return c.Image
	}
	return c.Images[name]
}

// ImageNames are the images that this host has.
func (c *Config) ImageNames() []string {
	names := slices.Sorted(maps.Keys(c.Images))
	if c.Image.Kernel != "" {
		names = append([]string{TinyImage}, names...)
	}
	return names
}

// rootSampled is how much of a root tells it from others: a squashfs has its time of
// making and its size in its first block.
const rootSampled = 4096

// RootMark tells the root disks of an image apart, whatever they are called: a guest
// that finds another one under its memory is lost. "" is of guests without one.
func (c *Config) RootMark(d Description) (string, error) {
	path := c.ImageOf(d.Image).Root
	if path == "" || d.QMP != "" || len(d.Start) > 0 {
		return "", nil
	}
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("image %s: %w", d.Image, err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", fmt.Errorf("image %s: %w", d.Image, err)
	}
	begin := make([]byte, rootSampled)
	n, err := io.ReadFull(file, begin)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return "", fmt.Errorf("image %s: %w", d.Image, err)
	}
	sum := sha256.Sum256(begin[:n])
	return fmt.Sprintf("%d-%s", info.Size(), hex.EncodeToString(sum[:8])), nil
}
