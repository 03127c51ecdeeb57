package guest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// MaxLine bounds one line, its newline included, in bytes.
const MaxLine = 1 << 20

// ErrLineTooLong is a line beyond MaxLine. The rest of it has been discarded:
// reading may go on with the next one.
var ErrLineTooLong = errors.New("line too long")

// lineReader reads one line after another and keeps no more than one in memory.
type lineReader struct {
	from *bufio.Reader
}

// newLines reads from r.
func newLines(r io.Reader) *lineReader {
	return &lineReader{from: bufio.NewReaderSize(r, 4096)}
}

// Next returns the next line that is not empty, without its newline. It is valid
// as long as the caller likes. A last line without a newline is io.ErrUnexpectedEOF.
func (l *lineReader) Next() ([]byte, error) {
	var line []byte
	long := false
	for {
		part, err := l.from.ReadSlice('\n')
		if !long && len(line)+len(part) > MaxLine {
			long, line = true, nil
		}
		if !long {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && (len(line) > 0 || long):
			return nil, io.ErrUnexpectedEOF
		case err != nil:
			return nil, err
		case long:
			return nil, ErrLineTooLong
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			return line, nil
		}
		line = nil
	}
}

// Request is what a host sends.
type Request struct {
	ID     string          `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params,omitempty"`
}

// Message is what a guest sends: a response if ID is set, else an event.
type Message struct {
	ID     string          `json:"id,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  string          `json:"error,omitempty"`
	Event
}

// parseRequest reads a request from a line.
func parseRequest(line []byte) (Request, error) {
	if request, ok := plainRequest(line); ok {
		return request, nil
	}
	var request Request
	if err := json.Unmarshal(line, &request); err != nil {
		return Request{}, fmt.Errorf("read request: %w", err)
	}
	if request.ID == "" || request.Method == "" {
		return Request{}, errors.New("read request: id or method is missing")
	}
	return request, nil
}

// plainRequest is parseRequest for what encode makes of a Request, without reflection, which would be most of what
// a request costs an emulated guest that has just arrived. The request's parameters lie in line.
func plainRequest(line []byte) (Request, bool) {
	id, rest, ok := plainField(line, `{"id":"`)
	if !ok {
		return Request{}, false
	}
	method, rest, ok := plainField(rest, `,"method":"`)
	if !ok || id == "" || method == "" {
		return Request{}, false
	}
	rest, ends := bytes.CutSuffix(rest, []byte("}"))
	params, has := bytes.CutPrefix(rest, []byte(`,"params":`))
	switch {
	case !ends || !has && len(rest) > 0 || has && !json.Valid(params):
		return Request{}, false
	case !has:
		params = nil
	}
	return Request{ID: id, Method: method, Params: bytes.TrimSpace(params)}, true
}

// plainField reads a string that begins behind begin, and has no character that JSON writes as others.
func plainField(line []byte, begin string) (value string, rest []byte, ok bool) {
	rest, ok = bytes.CutPrefix(line, []byte(begin))
	end := bytes.IndexByte(rest, '"')
	if !ok || end < 0 || !plain(rest[:end]) {
		return "", nil, false
	}
	return string(rest[:end]), rest[end+1:], true
}

func plain[T string | []byte](text T) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// ParseMessage reads a response or an event from a line.
func ParseMessage(line []byte) (Message, error) {
	var message Message
	if err := json.Unmarshal(line, &message); err != nil {
		return Message{}, fmt.Errorf("read message: %w", err)
	}
	if (message.ID == "") == (message.Name == "") {
		return Message{}, errors.New("read message: neither response nor event")
	}
	if len(message.Name) > longestWord || len(message.Call) > longestWord { // many events may wait for a reader
		return Message{}, errors.New("read message: an event with words that no guest has")
	}
	return message, nil
}

// encode makes a line. JSON escapes newlines, so that it is one.
func encode(value any) ([]byte, error) {
	m, ok := value.(Message)
	if ok && m.Event.Name == EventTick {
		return encodeTick(m.Event), nil
	}
	if ok && m.Error == "" && m.Event.Name == "" && plain(m.ID) && len(m.Result) > 0 && len(m.Result) < MaxLine/2 {
		return encodeResult(m), nil
	}
	line, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	if len(line) >= MaxLine {
		return nil, fmt.Errorf("%w: %d bytes", ErrLineTooLong, len(line))
	}
	return append(line, '\n'), nil
}

// encodeResult is encode without reflection for what a method came to, which is JSON in one line already.
func encodeResult(m Message) []byte {
	line := append(make([]byte, 0, len(m.ID)+len(m.Result)+32), `{"id":"`...)
	line = append(append(line, m.ID...), `","result":`...)
	return append(append(line, m.Result...), '}', '\n')
}

// encodeTick is encode for ticks without reflection, which would be most of what a
// tick costs a guest under emulation.
func encodeTick(e Event) []byte {
	line := make([]byte, 0, 64)
	line = append(line, `{"event":"tick","n":`...)
	line = strconv.AppendUint(line, e.N, 10)
	line = append(line, `,"mono_ns":`...)
	line = strconv.AppendInt(line, e.MonoNS, 10)
	return append(line, '}', '\n')
}
