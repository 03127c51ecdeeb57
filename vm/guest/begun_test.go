package guest

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
)

// TestAskedTwice: a program that dies of what it is asked, such as for want of memory, is not killed by that without
// end: it is asked once more.
func TestAskedTwice(t *testing.T) {
	near, far := net.Pipe()
	asked := make(chan int, 1)
	go func() {
		defer far.Close()
		n, lines := 0, newLines(far)
		defer func() { asked <- n }()
		for n < 5 { // it ends by itself where nobody ends it
			line, err := lines.Next()
			if err != nil {
				return
			}
			request, err := parseRequest(line)
			if err != nil {
				continue
			}
			says := `{"event":"begun"}`
			if request.Method == "sync" {
				says = fmt.Sprintf(`{"id":%q,"result":null}`, request.ID)
			} else {
				n++
			}
			if _, err := fmt.Fprintf(far, "\n%s\n", says); err != nil {
				return
			}
		}
	}()
	client, err := NewClient(t.Context(), near)
	if err != nil {
		t.Fatal(err)
	}
	err = client.Call(t.Context(), "users", nil, nil)
	if !errors.Is(err, ErrBegunAnew) || !strings.Contains(err.Error(), "guest users: asked twice: ") {
		t.Errorf("%v, want that it was started again", err)
	}
	client.Close()
	if n := <-asked; n != 2 {
		t.Errorf("asked %d times, want 2", n)
	}
}
