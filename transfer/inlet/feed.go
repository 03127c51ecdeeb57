package inlet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"godwit/transfer/qstream"
	"godwit/transfer/wire"
)

// stillTelling is between two words to a client that QEMU is being told what is missing. A test has it shorter.
var stillTelling = time.Second

// begin lets the guest run: from now on this process has what nobody else has.
func (s *server) begin(c *client, conn net.Conn) error {
	if conn == nil {
		return errors.New("begin without QEMU's connection")
	}
	pro, err := qstream.ParsePrologue(c.prologue)
	if err != nil {
		conn.Close()
		return err
	}
	missing := NewMissing(pro.Blocks.Pages())
	if err = missing.Add(c.runs); err != nil {
		conn.Close()
		return err
	}
	s.writer = qstream.Continue(conn, pro)
	said := time.Now()
	for n, r := range c.runs {
		if err = s.writer.Discard(r.First, r.Count); err != nil {
			conn.Close()
			return err
		}
		if n%4096 == 0 && time.Since(said) >= stillTelling { // the guest stands still
			said = time.Now()
			c.conn.Write([]byte{byte(kindState), 0, 0, 0, 1, 0}) //nolint:errcheck // the guest begins without it, too
		}
	}
	if err = s.writer.Run(c.devices); err != nil {
		conn.Close()
		return err
	}
	s.mu.Lock()
	s.qemu, s.prologue, s.blocks, s.missing = conn, c.prologue, pro.Blocks, missing
	s.mu.Unlock()
	c.devices, c.runs = nil, nil
	// The one message that its writing goroutine does not write: that waits for the first request.
	if _, err = c.conn.Write([]byte{byte(kindState), 0, 0, 0, 1, 1}); err != nil {
		fmt.Fprintln(os.Stderr, "inlet: client left as the guest began:", err)
	}
	go s.readQEMU(conn)
	return nil
}

// page gives QEMU a page that it misses.
func (s *server) page(k kind, body []byte) error {
	if k == kindZero && len(body) != 8 || k == kindPage && len(body) != longest {
		return fmt.Errorf("message %d of %d bytes", k, len(body))
	}
	number := binary.BigEndian.Uint64(body)
	s.mu.Lock()
	wanted := s.missing.Remove(number)
	s.mu.Unlock()
	if !wanted {
		return nil // QEMU takes each once
	}
	var err error
	if k == kindZero {
		err = s.writer.Zero(number)
	} else {
		err = s.writer.Page(number, body[8:])
	}
	return s.wrote(err)
}

func (s *server) flush() error {
	s.mu.Lock()
	left, over := s.missing.Left(), s.over != nil
	s.mu.Unlock()
	if left > 0 || over {
		return s.wrote(s.writer.EndPart())
	}
	if err := s.writer.Finish(); err != nil && !errors.Is(err, qstream.ErrOrder) { // a second flush after the last page
		return s.wrote(err)
	}
	return nil
}

// wrote closes a connection that takes nothing any more: its reader says what follows.
func (s *server) wrote(err error) error {
	if err == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.qemu.Close()
	return fmt.Errorf("write to QEMU: %w", err)
}

// readQEMU follows QEMU's return path to its end.
func (s *server) readQEMU(conn net.Conn) {
	defer close(s.gone)
	back := qstream.NewReturnPath(conn)
	for {
		m, err := back.Next()
		if err == nil {
			err = s.heard(m)
		}
		if err == nil {
			continue
		}
		s.mu.Lock()
		if s.over == nil {
			s.broken = fmt.Sprintf("QEMU's connection ended with %d pages missing: %v", s.missing.Left(), err)
		}
		s.close(s.client)
		s.mu.Unlock()
		return
	}
}

// heard takes one message of QEMU's return path.
func (s *server) heard(m qstream.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch m.Type {
	case qstream.Shut:
		if s.missing.Left() > 0 {
			return fmt.Errorf("QEMU ended its migration with %d", m.Value)
		}
		s.over = &Event{Done: true, Value: m.Value}
		s.close(s.client)
	case qstream.ReqPages, qstream.ReqPagesID:
		first, count, err := s.blocks.Range(m.Block, m.Offset, m.Length)
		if err != nil {
			return err
		}
		var wanted []uint64
		for n := first; n < first+count && len(wanted) < wire.MaxPages; n++ {
			if s.missing.Has(n) {
				wanted = append(wanted, n)
			}
		}
		if s.asked = append(s.asked, wanted...); len(s.asked) > 4*wire.MaxPages {
			s.compact()
		}
		if c := s.client; c != nil && !c.ended && len(wanted) > 0 {
			select {
			case c.queue <- wanted:
			default: // it does not listen: another one is told when it comes
				c.conn.Close()
			}
		}
	}
	return nil
}
