package journal

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// A host that loses its power may have written any of the blocks that were not synced, such as those of a record and
// not those of one before it. Who finds zeros in a record must know whether that was on the disk once, and may have
// been acted upon: it is damaged then, and what to do is a person's to say. So each record says how much of the journal
// was on the disk for sure when it was written, in bytes, as one more field: agents that do not know it read the record
// as ever. Theirs do not say it, so nothing before those may be missing.

// markLimit is how much longer a record becomes by its mark, bytes.
const markLimit = len(`,"on_disk":`) + 20

// marked is a record, a JSON object, that says so; durable: how much, 0: not known.
func marked(body []byte, durable int64) []byte {
	inside, is := bytes.CutSuffix(body, []byte{'}'})
	if durable == 0 || !is || len(inside) < 2 {
		return body
	}
	return fmt.Appendf(nil, `%s,"on_disk":%d}`, inside, durable)
}

// mark is what a record says of that.
func mark(body []byte) (durable int64, says bool) {
	var m struct {
		Durable int64 `json:"on_disk"`
	}
	err := json.Unmarshal(body, &m)
	return m.Durable, err == nil && m.Durable > 0
}

// isHole says whether what is missing at a place of a journal was never on the disk for sure, by what follows it.
func isHole(at int, after []byte) bool {
	for line := range bytes.Lines(after) {
		line, ends := bytes.CutSuffix(line, []byte{'\n'})
		if !ends {
			return true
		}
		body, err := record(line)
		if err != nil && bytes.IndexByte(line, 0) < 0 {
			return false
		}
		if durable, says := mark(body); err == nil && (!says || durable > int64(at)) {
			return false
		}
	}
	return true
}
