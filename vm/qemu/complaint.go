package qemu

import (
	"io"
	"os"
	"strings"
	"unicode"
)

// complaintMost bounds what of a log's line is passed on, bytes: a guest's own command may have
// written there what it likes.
const complaintMost = 300

// Complaint is the last line of a QEMU's log that says why something failed, "" if there is none.
// dir is its directory, also of one that somebody's command started.
func Complaint(dir string) string {
	f, err := os.Open(qemuLog(dir))
	if err != nil {
		return ""
	}
	defer f.Close()
	const end = 4096
	info, err := f.Stat()
	cut := err == nil && info.Size() > end
	if cut {
		_, _ = f.Seek(-end, io.SeekEnd)
	}
	text, err := io.ReadAll(io.LimitReader(f, end))
	if err != nil {
		return ""
	}
	whole := string(text)
	if _, rest, ok := strings.Cut(whole, "\n"); cut && ok { // what is before it is the end of a line
		whole = rest
	}
	return telling(whole)
}

// telling is the last line of a log that is no warning and says more than that a migration failed. Of
// a device whose state cannot be loaded QEMU says before that what is wrong with it.
func telling(log string) string {
	said := ""
	for line := range strings.Lines(log) {
		aside := isAside(line)
		line = plain(printable(line))
		switch {
		case line == "", aside, strings.HasPrefix(line, "load of migration failed"):
		case said != "" && strings.HasPrefix(line, "error while loading state") && len(said)+len(line) < complaintMost:
			said += "; " + line
		default:
			said = line
		}
	}
	return short(said)
}

// short is what of a line is passed on.
func short(line string) string {
	if len(line) > complaintMost {
		line = strings.ToValidUTF8(line[:complaintMost], "") + " …"
	}
	return line
}

// isAside says whether a line of a log is empty, a warning or the rest of one, or where a console is.
func isAside(line string) bool {
	said := plain(line)
	return said == "" || strings.HasPrefix(line, " ") || strings.HasPrefix(said, "warning:") || strings.Contains(said, ": warning: ") ||
		strings.HasPrefix(said, "WARNING: ") || strings.HasPrefix(said, "Please use ") || strings.HasPrefix(said, "char device redirected to ")
}

// printable is a line without what would do something to a terminal.
func printable(line string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(strings.TrimSpace(line), ""))
}
