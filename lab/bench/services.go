package bench

// The rows with services that people run, in the whole Debian guest (scripts/debian-image
// builds it, once).

// redisRow has 190 000 values of 1920 bytes, text that zstd level 1 shrinks to less than half,
// some 400 MB with what redis keeps beside them. 500 times a second one is set anew, six in
// ten of them among a fifth of the keys.
func redisRow() Row {
	const fill = `setup systemctl start redis-server && redis-cli config set save '' && perl -e '` + phrases + `
          for $k (0 .. 189999) { put($k) }' | redis-cli --pipe`
	const load = `exec perl -e '` + phrases + `
          while (1) { put(int(190000 * rand() ** 3)) for 1 .. 50; select(undef, undef, undef, 0.1) }' | redis-cli --pipe`
	return memoryRow("redis", "1 GiB, Debian, redis with 400 MB, 500 SETs a second on skewed keys, 100 Mbit/s, RTT 40 ms",
		situation{Memory: "1GiB", Image: "debian12", Rate: "100mbit", Delay: "10ms", Runs: []string{fill, load}},
		Aim{Variant: "L", Measure: "memory", Against: Best, AtMost: 0.5},
		Aim{Variant: "L", Measure: "VM downtime", Against: Best, AtMost: 0.3})
}

// phrases are 10922 phrases of made-up words, and put says SET with a new value of eight of them.
const phrases = `srand(7); $| = 1;
          sub word { join "", map { chr(97 + int(26 * rand() ** 2)) } 1 .. 3 + int(rand(8)) }
          @words = map { word() } 1 .. 4096;
          @phrases = map { sprintf("%-240.240s", join(" ", map { $words[rand(@words)] } 1 .. 36)) } 1 .. 10922;
          sub put { my $v = join("", map { $phrases[rand(@phrases)] } 1 .. 8); my $k = sprintf("user:%06d", $_[0]);
            print "*3\r\n\$3\r\nSET\r\n\$", length($k), "\r\n$k\r\n\$", length($v), "\r\n$v\r\n" }`

// nginxRow has 256 MiB of files, half of them text, half of what does not shrink, as pages
// of the web have it, which a client fetches one after the other, each by a new connection.
// The links lose a packet in 10 000 on the whole path.
func nginxRow() Row {
	const fill = `setup mkdir -p /var/www/html/f && cd /var/www/html/f && for i in $(seq 2 2 1024); do head -c 262144 /dev/urandom >$i; done && perl -e '` + phrases + `
          for $i (0 .. 511) { open(F, ">", 2 * $i + 1); print F join("", map { $phrases[rand(@phrases)] } 1 .. 1092); close(F) }' && systemctl start nginx`
	const fetch = `i=0; while :; do i=$((i % 1024 + 1)); curl -s -m 30 -o /dev/null http://$GUEST/f/$i || sleep 0.1; done`
	return sharesRow("nginx", "1 GiB, Debian, nginx with 256 MiB of files that a client fetches, 200 Mbit/s, RTT 150 ms, 0.01 % loss",
		situation{Memory: "1GiB", Image: "debian12", Rate: "200mbit", Delay: "37.5ms", Loss: "0.005%", Runs: []string{fill}, Fetch: fetch},
		Aim{Variant: "L", Measure: "link while it sends", AtLeast: 90},
		Aim{Variant: "L", Measure: "memory", Against: "P", AtMost: 0.5})
}
