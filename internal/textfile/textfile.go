// Package textfile opens files of text that a person names.
package textfile

import (
	"fmt"
	"os"
	"path/filepath"
)

// Open opens a regular file, or a descriptor that this process was given, such as /dev/stdin or a shell's <(…). To open
// another pipe would wait for whoever writes, maybe for ever: that is an error, as is all else that is no regular file.
func Open(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	given := path == "/dev/stdin" || filepath.Dir(path) == "/dev/fd"
	if !info.Mode().IsRegular() && !given {
		return nil, fmt.Errorf("open %s: no regular file; what a program writes is read from /dev/stdin", path)
	}
	return os.Open(path)
}
