package lanes

import (
	"errors"
	"testing"

	"godwit/migration"
	"godwit/transfer/wire"
)

// TestIdentity: a key of another length is none, and no part of one.
func TestIdentity(t *testing.T) {
	key := NewKey()
	if id, err := Identity("m-1", key); err != nil || id.Migration != "m-1" || id.Key != wire.Key(key) {
		t.Errorf("%+v, %v", id, err)
	}
	for _, bad := range [][]byte{nil, key[1:], append(key, 0)} {
		var problem *migration.Problem
		if id, err := Identity("m-1", bad); !errors.As(err, &problem) || problem.Code != migration.CodePeer || id.Key != (wire.Key{}) {
			t.Errorf("%d bytes: %+v, %v", len(bad), id, err)
		}
	}
}
