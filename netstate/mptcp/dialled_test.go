package mptcp

import "testing"

// TestDialled: which side opened a connection its first subflow tells, at both ends.
func TestDialled(t *testing.T) {
	loopback(t, "10.9.1.1/32")
	client, server := connect(t, "10.9.1.1", true)
	if c, ok := side(t, portOf(t, client.LocalAddr())); !ok || !c.Dialled {
		t.Errorf("who dialled: %+v", c)
	}
	if c, ok := side(t, portOf(t, server.LocalAddr())); !ok || c.Dialled {
		t.Errorf("who was dialled: %+v", c)
	}
}
