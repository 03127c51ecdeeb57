package guest

import "errors"

// ErrBegunAnew is of a call that nobody answers: the program that was asked is gone, such as killed for want of memory, and another has been started
// in the guest. Whether the call was carried out is not known.
var ErrBegunAnew = errors.New("the guest's program was started again meanwhile")

// doneOnce are methods that do something else, or once more, where they are called again.
var doneOnce = []string{"exec", "poweroff", "reboot"}

// abandon ends the calls that wait. One that the new program has still to read is ended with them.
func (c *Client) abandon() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, answer := range c.waiting {
		delete(c.waiting, id)
		close(answer)
	}
}
