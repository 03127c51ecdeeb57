package mptcp

import (
	"testing"

	"godwit/internal/need"
)

func TestMain(m *testing.M) { need.Namespace(m) }
