package encode

import "godwit/transfer/pages"

// Coder makes bodies. It is for one goroutine; several coders may share a store.
type Coder struct{}

// NewCoder makes a coder; sources and known may be nil.
func NewCoder(sources Sources, known Known) *Coder { panic("not yet") }

// Encode appends the body of f to dst and sets the Coding of its pages. Same frame, same
// level, same body only as long as nothing is delivered: keep the bytes to send them again.
func (c *Coder) Encode(dst []byte, f *pages.Frame, level Level) ([]byte, Counts) { panic("not yet") }
