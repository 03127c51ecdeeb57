package guest

import (
	"context"
	"errors"
)

// ErrBegunAnew is of a call that nobody answers: the program that was asked is gone, such as killed for want of memory,
// and another has been started in the guest. Whether the call was carried out is not known.
var ErrBegunAnew = errors.New("the guest's program was started again meanwhile")

// doneOnce are methods that do something else, or once more, where they are called again.
var doneOnce = []string{"exec", "poweroff", "reboot"}

// abandon ends the calls that wait, unless that is closed. One that the new program has still to read is ended with them.
func (c *Client) abandon(unless <-chan struct{}) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-unless:
		return false
	default:
	}
	for id, answer := range c.waiting {
		delete(c.waiting, id)
		close(answer)
	}
	return true
}

// mayBeUnheard says that a program began before the sync was answered.
func (c *Client) mayBeUnheard() {
	select {
	case c.unheard <- struct{}{}:
	default: // that of one before it has not been seen to
	}
}

// keepSyncing syncs once more with each program that begins before the sync was answered: that may have gone with the
// one before, and so may what came behind it. A program that has still to read it answers twice.
func (c *Client) keepSyncing() {
	for {
		select {
		case <-c.unheard:
			c.syncOnceMore()
		case <-c.synced:
			return
		case <-c.done:
			return
		}
	}
}

// syncOnceMore has the calls that wait come once more behind the sync: the guest forgets with it what it has not
// answered yet.
func (c *Client) syncOnceMore() {
	c.writing.Lock()
	defer c.writing.Unlock()
	request, err := c.sync()
	if err != nil || !c.syncSent || !c.abandon(c.synced) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), echoLimit)
	defer cancel()
	if c.send(ctx, request) == nil && c.echo != nil {
		c.echo.Reset(echoLimit)
	}
}
