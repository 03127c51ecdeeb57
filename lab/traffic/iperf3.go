package traffic

import (
	"regexp"
	"strconv"
	"strings"
	"time"
)

// iperf3 writes blocks of 128 KiB where it is not told. Of little data per second they are
// so small that ten a second go out: else nothing would be heard for seconds.
const (
	iperf3Block = 128 << 10
	leastBlock  = 512
)

func iperf3Args(f Flow) []string {
	args := []string{"-c", f.Target.String(), "-p", strconv.Itoa(int(f.port())), "-t", "86400", "-i", "0.1", "-f", "m", "--forceflush"}
	if f.Connections > 1 {
		args = append(args, "-P", strconv.Itoa(f.Connections))
	}
	if f.Rate > 0 {
		args = append(args, "-b", strconv.FormatInt(f.each(), 10), "-l", strconv.FormatInt(iperf3BlockOf(f), 10))
	}
	return args
}

// iperf3BlockOf is the size of what a connection with a rate sends at once, in bytes.
func iperf3BlockOf(f Flow) int64 { return min(max(f.each()/8/10, leastBlock), iperf3Block) }

// blockEvery is how long it takes from one of those to the next, in ns.
func blockEvery(f Flow) int64 {
	if f.each() == 0 {
		return 0
	}
	return iperf3BlockOf(f) * 8 * int64(time.Second) / f.each()
}

// intervalLine is one of iperf3's: id, bytes, unit, retransmits, and what else it says. An interval is longer than it
// was asked for where the program had no processor.
var intervalLine = regexp.MustCompile(
	`^\[ *(\d+|SUM)\] +[\d.]+-[\d.]+ +sec +([\d.]+) ([KMG]?)Bytes +[\d.]+ Mbits/sec(?: +(\d+))?(.*)$`)

// summary is by what a line differs that is of all intervals, at the end.
var summary = regexp.MustCompile(`\b(sender|receiver)\b`)

// connectedLine is what iperf3 says of each connection for data: id, its address and port, and the other's.
var connectedLine = regexp.MustCompile(`^\[ *\d+\] local \S+ port (\d+) connected to `)

// parseInterval reads the bytes and retransmits of one interval; false if it is no line to count
// (with several connections only their sum counts).
func parseInterval(line string, connections int) (bytes, retransmits int64, ok bool) {
	m := intervalLine.FindStringSubmatch(strings.TrimRight(line, "\r\n"))
	if m == nil || (connections > 1) != (m[1] == "SUM") || summary.MatchString(m[5]) {
		return 0, 0, false
	}
	amount, _ := strconv.ParseFloat(m[2], 64)
	unit := map[string]float64{"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[m[3]]
	more, _ := strconv.ParseInt(m[4], 10, 64) // than at the last line, modulo 2^32; fewer where the kernel's count began anew
	return int64(amount * unit), int64(max(0, int32(more))), true
}
