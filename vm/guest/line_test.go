package guest

import (
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
)

// slowly is parseRequest by reflection alone.
func slowly(line []byte) (Request, bool) {
	var r Request
	err := json.Unmarshal(line, &r)
	return r, err == nil && r.ID != "" && r.Method != ""
}

func FuzzRequests(f *testing.F) {
	for _, line := range []string{
		`{"id":"a-1","method":"configure","params":{"mac":"52:54:00:00:00:01","addrs":["10.2.1.10/24"]}}`,
		`{"id":"a-1","method":"info"}`, `{"id":"a","method":"x","params":{}}}`, `{"id":"a","method":"x","params":{},"id":"b"}`,
		`{"id":"","method":"x"}`, `{"id":"a\u0041","method":"x"}`, `{"id":"ä","method":"x"}`, `{"id":"a","method":"x","params":}`,
		`{"id":"a","method":"x","params":null}`, `{"id":"a","method":"x","params":{"b{"id":"c","method":"poweroff"}}`,
		`{"id":"a","method":"x" }`, `{"id":"a","method":"x","other":1}`,
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		quick, ok := plainRequest(line)
		if !ok {
			return
		}
		slow, fine := slowly(line)
		if !fine || quick.ID != slow.ID || quick.Method != slow.Method || string(quick.Params) != string(slow.Params) {
			t.Errorf("%q: %+v, slowly %+v", line, quick, slow)
		}
	})
}

// TestPlainLines: what a client asks, and what it is answered, is read and written without reflection, and as
// reflection would have it.
func TestPlainLines(t *testing.T) {
	params, err := json.Marshal(Configure{MAC: "52:54:00:00:00:01", Table: 7, Endpoint: 3})
	if err != nil {
		t.Fatal(err)
	}
	line, err := encode(Request{ID: "0123456789abcdef-1", Method: "configure", Params: params})
	if err != nil {
		t.Fatal(err)
	}
	line = line[:len(line)-1]
	got, err := parseRequest(line)
	want, _ := slowly(line)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = parseRequest(line) }); n > 4 { // two strings, and what json.Valid takes
		t.Errorf("a request takes %v allocations", n)
	}
	answer := Message{ID: "0123456789abcdef-1", Result: json.RawMessage(`{"device":"eth1","endpoint_ids":"Aw=="}`)}
	written, err := encode(answer)
	if err != nil {
		t.Fatal(err)
	}
	if slow, err := json.Marshal(answer); err != nil || string(slow)+"\n" != string(written) {
		t.Errorf("%s, slowly %s, %v", written, slow, err)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = encode(answer) }); n > 2 { // the message as a value, and the line
		t.Errorf("an answer takes %v allocations", n)
	}
}

func TestLongLinesAreSkipped(t *testing.T) {
	long := strings.Repeat("x", MaxLine)
	lines := newLines(strings.NewReader("a\n\n" + long + "\nb\n" + long[1:] + "\nhalf"))
	for _, want := range []struct {
		line string
		err  error
	}{{"a", nil}, {"", ErrLineTooLong}, {"b", nil}, {long[1:], nil}, {"", io.ErrUnexpectedEOF}, {"", io.EOF}} {
		line, err := lines.Next()
		if string(line) != want.line || !errors.Is(err, want.err) {
			t.Fatalf("got %.20q %v, want %.20q %v", line, err, want.line, want.err)
		}
	}
}

func FuzzLines(f *testing.F) {
	f.Add([]byte("{\"id\":\"1\",\"method\":\"sync\"}\n\n{\"event\":\"tick\"}\nhalf"))
	f.Add([]byte("\x00\xff\n{\"id\":\"1\",\"error\":\"x\"}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		lines := newLines(strings.NewReader(string(b)))
		for {
			line, err := lines.Next()
			if errors.Is(err, ErrLineTooLong) {
				continue
			}
			if err != nil {
				return
			}
			if len(line) == 0 || len(line) > MaxLine || strings.ContainsRune(string(line), '\n') {
				t.Fatalf("line %q", line)
			}
			if r, err := parseRequest(line); err == nil {
				again, err := encode(r)
				if err != nil && len(line) < MaxLine/8 {
					t.Fatalf("encode %+v: %v", r, err)
				}
				if err == nil && strings.Count(string(again), "\n") != 1 {
					t.Fatalf("%q is not one line", again)
				}
			}
			_, _ = ParseMessage(line)
		}
	})
}
