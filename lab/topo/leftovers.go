package topo

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"

	"godwit/netstate/dump"
	"godwit/netstate/netns"
)

// Marks by which a lab's things are known.
func namespacePrefix(id string) string { return "gw" + id + "-" }
func folderPrefix(id string) string    { return filepath.Join(os.TempDir(), "godwit-lab-"+id) }

// Leftovers names what remains on this machine of the lab id: namespaces, devices
// outside them, processes, temporary files. The caller itself and its parents do not
// count.
func Leftovers(id string) []string {
	var left []string
	names, err := netns.List(namespacePrefix(id))
	if err != nil {
		left = append(left, err.Error())
	}
	seen := map[int]bool{}
	for name, pids := range netns.ProcessesIn(names...) {
		for _, pid := range pids {
			seen[pid] = true
			left = append(left, fmt.Sprintf("process %d (%s) in namespace %s", pid, command(pid), name))
		}
	}
	for _, name := range names {
		left = append(left, "namespace "+name)
	}
	for _, pid := range marked(id) {
		if !seen[pid] {
			left = append(left, fmt.Sprintf("process %d (%s)", pid, command(pid)))
		}
	}
	links, err := dump.Links()
	if err != nil {
		left = append(left, fmt.Sprintf("look for devices: %v", err))
	}
	for _, link := range links {
		attrs := link.Attrs()
		if strings.HasPrefix(attrs.Name, "gw"+id) || strings.Contains(attrs.Alias, namespacePrefix(id)) {
			left = append(left, "device "+attrs.Name)
		}
	}
	folder, prefix := filepath.Split(folderPrefix(id))
	files, _ := fs.Glob(os.DirFS(folder), prefix+"*") // folder is no pattern
	for _, file := range files {
		left = append(left, "file "+filepath.Join(folder, file))
	}
	sort.Strings(left)
	return left
}

// Remove takes away all namespaces of the lab id and ends every process in them, with
// no memory of having made them. It is no error if there are none.
func Remove(id string) error {
	names, err := netns.List(namespacePrefix(id))
	if err != nil {
		return err
	}
	var errs []error
	if err := end(names); err != nil {
		errs = append(errs, err)
	}
	for _, name := range names {
		if err := netns.Delete(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// endTime bounds how long processes that were killed may take to go.
const endTime = 3 * time.Second

// end kills every process inside the namespaces until none is left: one that was
// forking may need a second look.
func end(names []string) error {
	deadline := time.Now().Add(endTime)
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		found := netns.ProcessesIn(names...)
		if len(found) == 0 {
			return nil
		}
		for name, pids := range found {
			for _, pid := range pids {
				if time.Now().After(deadline) {
					return fmt.Errorf("end process %d (%s) in namespace %s: it does not end", pid, command(pid), name)
				}
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		time.Sleep(wait)
	}
}

// marked returns the processes that carry the mark of the lab id in their command line
// or environment, except the caller and those it descends from.
func marked(id string) (pids []int) {
	marks := [][]byte{
		[]byte(namespacePrefix(id)), []byte("godwit-lab-" + id), []byte("GODWIT_LAB=" + id),
	}
	own := map[int]bool{}
	for pid := os.Getpid(); pid > 1 && !own[pid]; pid = parent(pid) {
		own[pid] = true
	}
	folders, _ := filepath.Glob("/proc/[0-9]*")
	for _, folder := range folders {
		pid, err := strconv.Atoi(filepath.Base(folder))
		if err != nil || own[pid] {
			continue
		}
		line, _ := os.ReadFile(folder + "/cmdline")
		environment, _ := os.ReadFile(folder + "/environ")
		for _, mark := range marks {
			if bytes.Contains(line, mark) || bytes.Contains(environment, mark) {
				pids = append(pids, pid)
				break
			}
		}
	}
	return pids
}

// parent returns the parent of pid, 0 if that is not known.
func parent(pid int) int {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name, in parentheses, may hold anything: look behind it (proc_pid_stat(5)).
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 2 {
		return 0
	}
	ppid, _ := strconv.Atoi(fields[1])
	return ppid
}

// command returns what a person knows a process by.
func command(pid int) string {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(line) == 0 {
		return "?"
	}
	text := strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " "))
	return text[:min(len(text), 80)]
}
