// Package journal keeps what an agent must not forget: one file per migration,
// appended before each effect.
//
// A record is one line: eight hex digits of CRC-32C (Castagnoli) over the JSON that
// follows them after a space, then a newline. The first record names the format's
// version. The state is the last record; a record cut off by a crash (no newline)
// was never acted upon and is dropped when the file is opened; a bad record
// anywhere else is an error, never guessed around.
//
// Zero bytes follow the last record: the file has its room from the beginning, written
// and on the disk, so that syncing a record needs nothing of the file system but the
// record's own blocks (fdatasync(2)): no commit of its journal, which may wait for what
// others write. A crash of the host may leave part of a record in that room, with zeros
// for the rest: a record with zeros in it, JSON never has any, was cut off too. So it is where
// records follow that were not synced either, each of which says what was; see hole.go.
package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"godwit/internal/durable"
)

// Version of the format. 2: states have epochs, and may have been taken back or have
// vanished; an agent that knows only 1 would read that as nothing.
const Version = 2

const (
	recordLimit = 1 << 20   // of one record, bytes
	fileLimit   = 64 << 20  // of what is read of a file, bytes
	room        = 128 << 10 // that a file is made or grows by, bytes: of some sixty records
)

var table = crc32.MakeTable(crc32.Castagnoli)

// ErrNoState says that a journal was begun and nothing written to it: its owner
// ended before the first effect.
var ErrNoState = errors.New("it has no state")

// errFull is of a journal that no agent would read if it became longer.
var errFull = fmt.Errorf("it has %d MiB, and could not begin anew", fileLimit>>20)

type opening struct {
	Version int `json:"godwit_journal"`
}

// File is one migration's journal.
type File struct {
	path    string
	f       disk
	length  int64  // of what is valid
	size    int64  // of the file: zeros follow what is valid
	durable int64  // so much of it is known to be on the disk
	unsure  bool   // a sync failed; see mend
	broken  error  // why nothing more can be appended, until that is mended
	last    []byte // the last record's JSON; nil: not known
	synced  bool   // it is on the disk
	gone    bool   // the file was removed
	longAt  int64  // how long it may become before it begins anew; see shorten
	unnamed bool   // its name may not be on the disk
	timed   func(took time.Duration)
}

func newFile(path string, f disk) *File { return &File{path: path, f: f, longAt: longest} }

// OnSync has each sync of a record to the disk told to timed, when it is done.
func (j *File) OnSync(timed func(took time.Duration)) { j.timed = timed }

// Create makes DIR/ID.journal, durably. It fails if there is one.
func Create(dir, id string) (*File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create journal %s: %w", id, err)
	}
	path := filepath.Join(dir, id+".journal")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create journal %s: %w", id, err)
	}
	j := newFile(path, file{f})
	if err := errors.Join(j.Append(opening{Version}, false), f.Sync(), durable.SyncDir(dir)); err != nil {
		f.Close()
		os.Remove(path)
		return nil, fmt.Errorf("create journal %s: %w", id, err)
	}
	j.durable = j.length
	return j, nil
}

// Open reads DIR/ID.journal, puts the last record into state and continues the file.
// The error is ErrNoState where there is none yet.
func Open(dir, id string, state any) (*File, error) {
	path := filepath.Join(dir, id+".journal")
	data, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("open journal %s: %w", id, err)
	}
	last, length, err := lastRecord(data)
	if err != nil {
		return nil, fmt.Errorf("open journal %s: %w", path, err)
	}
	if last == nil {
		return nil, fmt.Errorf("open journal %s: %w", path, ErrNoState)
	}
	if err := json.Unmarshal(last, state); err != nil {
		return nil, fmt.Errorf("open journal %s: %w", path, err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open journal %s: %w", id, err)
	}
	j := newFile(path, file{f})
	j.length, j.size = int64(length), int64(len(data))
	if on, says := mark(last); says && on <= j.length {
		j.durable = on
	}
	os.Remove(begunAnew(path))                      //nolint:errcheck // a crash may have left it, and what it says is here
	if len(bytes.Trim(data[length:], "\x00")) > 0 { // what must not be read with the next, nor come back behind it
		j.unsure = true
		if err := j.mend(); err != nil {
			f.Close()
			return nil, fmt.Errorf("open journal %s: %w", id, err)
		}
	}
	return j, nil
}

// readFile reads a whole journal, if it can be one.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, fileLimit+1))
	if err == nil && len(data) > fileLimit {
		err = fmt.Errorf("%s is larger than %d MiB", path, fileLimit>>20)
	}
	return data, err
}

// Read puts the last record of DIR/ID.journal into state and changes nothing, so it may
// be called while the journal's owner writes. The error is ErrNoState where there is
// none yet.
func Read(dir, id string, state any) error {
	path := filepath.Join(dir, id+".journal")
	data, err := readFile(path)
	if err != nil {
		return fmt.Errorf("read journal %s: %w", id, err)
	}
	last, _, err := lastRecord(data)
	if err == nil && last == nil {
		err = ErrNoState
	}
	if err == nil {
		err = json.Unmarshal(last, state)
	}
	if err != nil {
		return fmt.Errorf("read journal %s: %w", path, err)
	}
	return nil
}

// First puts the first record of DIR/ID.journal that is whole into state, whatever is wrong with the rest, or with the
// format: what stays the same in a journal, such as whose it is, is known by it where Read fails. It changes nothing.
// The error is that there is none.
func First(dir, id string, state any) error {
	data, err := readFile(filepath.Join(dir, id+".journal"))
	if err != nil {
		return fmt.Errorf("read journal %s: %w", id, err)
	}
	for n, line := range bytes.Split(data, []byte{'\n'}) {
		if body, err := record(line); n > 0 && err == nil && json.Unmarshal(body, state) == nil {
			return nil
		}
	}
	return fmt.Errorf("read journal %s: no record in it is whole", id)
}

// Append writes one record; with sync it is on the disk when Append returns. One that says
// what the last said is not written again: a doubt may be asked about for months. A journal that has become
// long begins anew, with the last. On an error the journal is as it was: no part of a record stays that a later one would
// be glued to, and none that was not acted upon is read after a crash of the agent, or of the host.
func (j *File) Append(record any, sync bool) error {
	line, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("write journal %s: %w", j.path, err)
	}
	if len(line)+markLimit > recordLimit {
		return fmt.Errorf("write journal %s: record of %d bytes", j.path, len(line))
	}
	if j.broken == nil {
		j.broken = j.shorten()
	}
	if j.broken != nil {
		if j.broken = j.mend(); j.broken != nil {
			return fmt.Errorf("write journal %s: %w", j.path, j.broken)
		}
	}
	if bytes.Equal(line, j.last) && (j.synced || !sync) {
		return nil
	}
	body := marked(line, j.durable)
	out := fmt.Appendf(nil, "%08x %s\n", crc32.Checksum(body, table), body)
	if err = j.Reserve(len(out)); err != nil { // what room there is stays, for a record that is shorter
		return fmt.Errorf("write journal %s: %w", j.path, err)
	}
	if _, err = j.f.WriteAt(out, j.length); err == nil && sync {
		err = j.sync()
		j.unsure = err != nil
	}
	if err != nil {
		j.broken = j.mend()
		return fmt.Errorf("write journal %s: %w", j.path, errors.Join(err, j.broken))
	}
	j.length += int64(len(out))
	j.last, j.synced = line, sync
	if sync {
		j.durable = j.length
	}
	return nil
}

// sync puts on the disk what was written, and not the file's times.
func (j *File) sync() error {
	if j.timed != nil {
		defer func(begun time.Time) { j.timed(time.Since(begun)) }(time.Now())
	}
	return j.f.Datasync()
}

// Reserve makes room for n bytes of records, and what comes after them, where there is too little. On an error, such
// as a full disk, what room there was is there still: who writes what matters less sees first to what follows.
func (j *File) Reserve(n int) error {
	if j.length+int64(n) <= j.size {
		return nil
	}
	more := make([]byte, n+room)
	if j.size+int64(len(more)) > fileLimit {
		j.longAt = 0 // it is to begin anew as soon as it can
		return errFull
	}
	if _, err := j.f.WriteAt(more, j.size); err != nil {
		return errors.Join(err, j.f.Truncate(j.size))
	}
	j.size += int64(len(more))
	return nil
}

// Close keeps the file for the next start of the agent.
func (j *File) Close() error { return j.f.Close() }

// Remove ends the journal: the migration is over and its outcome is in the history. It does not come back with a host
// that loses its power. After an error it may be called again; unless it has Gone by then, the journal is as it was.
func (j *File) Remove() error {
	if !j.gone {
		if err := os.Remove(j.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("end journal: %w", err)
		}
		j.gone = true
		j.f.Close() //nolint:errcheck // nobody reads it any more
	}
	return durable.SyncDir(filepath.Dir(j.path))
}

// Gone says that the file was removed, also where it may come back with a host that loses its power.
func (j *File) Gone() bool { return j.gone }

// Discard removes a journal that Open found to have no state.
func Discard(dir, id string) error { return os.Remove(filepath.Join(dir, id+".journal")) }

// Unfinished lists the ids of the journals in dir.
func Unfinished(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list journals: %w", err)
	}
	var ids []string
	for _, e := range entries {
		if id, ok := strings.CutSuffix(e.Name(), ".journal"); ok {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// lastRecord returns the last whole record after the opening, and the length of
// what is valid.
func lastRecord(data []byte) (last []byte, length int, err error) {
	for n := 0; length < len(data); n++ {
		end := bytes.IndexByte(data[length:], '\n')
		if end < 0 {
			return last, length, nil // cut off by a crash, or room
		}
		line := data[length : length+end]
		body, err := record(line)
		if err != nil && bytes.IndexByte(line, 0) >= 0 && isHole(length, data[length+end+1:]) {
			return last, length, nil // cut off by a crash, in the room
		}
		if err != nil {
			return nil, 0, fmt.Errorf("record %d: %w", n, err)
		}
		if n == 0 {
			if err := checkVersion(body); err != nil {
				return nil, 0, err
			}
		} else {
			last = body
		}
		length += end + 1
	}
	return last, length, nil
}

func record(line []byte) ([]byte, error) {
	if len(line) < 10 || line[8] != ' ' || len(line) > recordLimit+9 {
		return nil, errors.New("not a record")
	}
	sum, err := strconv.ParseUint(string(line[:8]), 16, 32)
	if err != nil {
		return nil, errors.New("not a record")
	}
	body := line[9:]
	if uint64(crc32.Checksum(body, table)) != sum {
		return nil, errors.New("checksum does not match")
	}
	return body, nil
}

func checkVersion(body []byte) error {
	var o opening
	if err := json.Unmarshal(body, &o); err != nil || o.Version < 1 {
		return errors.New("no format version in its first record")
	}
	if o.Version > Version {
		return fmt.Errorf("written by a newer godwit (format %d, this one knows %d)", o.Version, Version)
	}
	return nil
}
