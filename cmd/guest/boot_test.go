package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestRoomForDatagrams: what waits for two sockets with 4 MiB each, as the lab's traffic has, finds room in the
// smallest guest of the lab's tests, and what is let wait of TCP and UDP leaves most of the memory to others.
func TestRoomForDatagrams(t *testing.T) {
	const smallest = 76 << 20 // what is left of 112 MiB
	for _, memory := range []uint64{smallest, 1 << 30} {
		mem := map[string][3]uint64{}
		for _, line := range strings.Fields(strings.ReplaceAll(buffers(memory), " ", ",")) {
			key, value, _ := strings.Cut(line, "=")
			var pages [3]uint64
			if _, err := fmt.Sscanf(value, "%d,%d,%d", &pages[0], &pages[1], &pages[2]); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			mem[key] = pages
		}
		page := uint64(os.Getpagesize())
		if room := mem["net.ipv4.udp_mem"][0] * page; room < 2*4<<20 {
			t.Errorf("of %d bytes datagrams may use %d", memory, room)
		}
		if all := (mem["net.ipv4.udp_mem"][2] + mem["net.ipv4.tcp_mem"][2]) * page; all > memory/3 {
			t.Errorf("of %d bytes what waits may use %d", memory, all)
		}
	}
}
