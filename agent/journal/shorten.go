package journal

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"godwit/internal/durable"
)

// longest is how long a journal becomes before it begins anew, bytes: of who repairs something forward for days, such
// as on a disk that has no file left, and says each time what is wrong now, which may be other words, and all that a
// report has. It is far more than a migration writes that ends, and far less than fileLimit.
const longest = 16 << 20

// begunAnew is the name of a journal while it is begun anew.
func begunAnew(path string) string { return path + ".new" }

// shorten begins a journal that has become long anew, with its last record alone. It would else fill the disk, and no
// later agent could read it. Both files say the same, so it does not matter which of them a crash leaves. One that
// cannot be begun anew goes on, up to fileLimit, and it is tried again when it has grown by as much. The error is that
// the new one's name may not be on the disk: what comes next would be lost with it, see mend.
func (j *File) shorten() error {
	if j.length < j.longAt || j.last == nil {
		return nil
	}
	j.longAt = j.length + longest/4
	next, err := j.again()
	if err != nil {
		return nil //nolint:nilerr // as it is, it serves as well
	}
	next.timed, next.unnamed = j.timed, true
	j.f.Close() //nolint:errcheck // nobody has its name any more
	*j = *next
	return j.name()
}

// again is a journal with the last record of j, which has its name. On error there is none, and j is as it was.
func (j *File) again() (*File, error) {
	path := begunAnew(j.path)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	next := newFile(j.path, file{f})
	err = errors.Join(next.Append(opening{Version}, false), next.Append(json.RawMessage(j.last), false), f.Sync())
	if err == nil {
		err = os.Rename(path, j.path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(path))
	}
	next.durable, next.synced = next.length, true
	return next, nil
}

// name has the file's name be on the disk, where that is not known.
func (j *File) name() error {
	if !j.unnamed {
		return nil
	}
	err := durable.SyncDir(filepath.Dir(j.path))
	j.unnamed = err != nil
	return err
}
