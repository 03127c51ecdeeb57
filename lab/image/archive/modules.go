package archive

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// before lists what a module needs although its file does not say so.
var before = map[string][]string{"virtio": {"virtio_ring"}}

// Modules gathers kernel modules, of the folder lib/modules/VERSION, with what they depend
// on, and the file lib/modules/order, which lists them in the order to load them in.
func Modules(folder string, names []string) ([]Entry, error) {
	files, err := moduleFiles(folder)
	if err != nil {
		return nil, err
	}
	builtin, err := os.ReadFile(filepath.Join(folder, "modules.builtin"))
	if err != nil {
		return nil, err
	}
	order := &order{files: files, builtin: builtinNames(string(builtin)), content: make(map[string][]byte)}
	for _, name := range names {
		if err := order.add(name); err != nil {
			return nil, err
		}
	}
	list := strings.Join(order.names, ".ko\n") + ".ko\n"
	if len(order.names) == 0 {
		list = ""
	}
	entries := []Entry{{Path: "lib/modules/order", Mode: 0o644, Content: []byte(list)}}
	for _, name := range order.names {
		entries = append(entries, Entry{Path: "lib/modules/" + name + ".ko", Mode: 0o644, Content: order.content[name]})
	}
	return entries, nil
}

func canonical(file string) string {
	name, _, _ := strings.Cut(filepath.Base(file), ".ko")
	return strings.ReplaceAll(name, "-", "_")
}

func moduleFiles(folder string) (map[string]string, error) {
	files := make(map[string]string)
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && strings.HasSuffix(path, ".ko") {
			files[canonical(path)] = path
		}
		return err
	})
	return files, err
}

func builtinNames(list string) map[string]bool {
	names := make(map[string]bool)
	for _, line := range strings.Fields(list) {
		names[canonical(line)] = true
	}
	return names
}

// order sorts modules so that each comes after what it depends on.
type order struct {
	files   map[string]string
	builtin map[string]bool
	content map[string][]byte
	names   []string
}

func (o *order) add(name string) error {
	if _, done := o.content[name]; done || o.builtin[name] {
		return nil
	}
	path, ok := o.files[name]
	if !ok {
		return fmt.Errorf("module %s: neither a module nor part of this kernel", name)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	o.content[name] = content
	depends, err := dependencies(content)
	if err != nil {
		return fmt.Errorf("module %s: %w", path, err)
	}
	for _, dependency := range append(depends, before[name]...) {
		if err := o.add(dependency); err != nil {
			return fmt.Errorf("module %s: %w", name, err)
		}
	}
	o.names = append(o.names, name)
	return nil
}

// dependencies reads a module's own "depends=" line.
func dependencies(module []byte) ([]string, error) {
	file, err := elf.NewFile(bytes.NewReader(module))
	if err != nil {
		return nil, err
	}
	section := file.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("has no .modinfo")
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	for _, line := range strings.Split(string(info), "\x00") {
		if list, ok := strings.CutPrefix(line, "depends="); ok && list != "" {
			return strings.Split(strings.ReplaceAll(list, "-", "_"), ","), nil
		}
	}
	return nil, nil
}
