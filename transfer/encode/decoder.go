package encode

// Decoder reads bodies. It is for one goroutine; several may share a mirror, but then
// decoded pages of two frames come in no order.
type Decoder struct{}

// NewDecoder makes a decoder for a guest of total pages; known may be nil.
func NewDecoder(total uint64, mirror Mirror, known Contents) *Decoder { panic("not yet") }

// Decode resolves a frame's body and writes its pages to the mirror. An error that matches
// ErrCorrupt is the sender's, any other one the mirror's; pages before it may have been
// written. What is missed is missed again when the frame is repeated, unless it came with
// another frame since.
func (d *Decoder) Decode(frame uint64, body []byte) (Result, error) { panic("not yet") }
