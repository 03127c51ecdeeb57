package agent

import (
	"bytes"
	"fmt"
	"slices"

	"godwit/migration"
)

// refillsKept is of how many refills before the last it is known that they are over.
const refillsKept = 16

// asksAgain says whether a refill is the last one, asked for again by a source that did not hear the answer. One of
// before, which comes late, is an error: the lanes that came after it bring what is missing. The caller holds
// refilling.
func (m *incoming) asksAgain(key []byte) (bool, error) {
	at := slices.IndexFunc(m.refills, func(of []byte) bool { return bytes.Equal(of, key) })
	if at >= 0 && at < len(m.refills)-1 {
		return false, &migration.Problem{Code: migration.CodeUsage, Text: fmt.Sprintf("refill %s: another was asked for since, and has taken its place", m.plan.ID)}
	}
	return at >= 0, nil
}
