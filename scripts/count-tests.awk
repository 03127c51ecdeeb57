# Reads `go test -json`. Prints one line for each package, in full what failed,
# and at the end every skip with its reason and what failed, with the first lines that it said. Writes "passed
# failed skipped" into the file named by the variable counts, and what failed into failures. A test that skips and is
# not in the file named by allowed has failed, but where GODWIT_GUESTS=off asked for that.
#
# Tests and their subtests count, as in gotestsum. A package that fails without
# a failing test (it does not build, it panics outside one) counts as one failure.

# field NAME: the string value of a key of this line's object. Inside of values
# every quote is escaped, so a key cannot be mistaken.
function field(name,    at, rest) {
	at = index($0, "\"" name "\":\"")
	if (!at) return ""
	rest = substr($0, at + length(name) + 4)
	return match(rest, /^([^"\\]|\\.)*/) ? substr(rest, 1, RLENGTH) : ""
}

function unescape(text) {
	gsub(/\\\\/, "\001", text)
	gsub(/\\n/, "\n", text); gsub(/\\t/, "\t", text); gsub(/\\r/, "", text); gsub(/\\"/, "\"", text)
	gsub(/\\u003c/, "<", text); gsub(/\\u003e/, ">", text); gsub(/\\u0026/, "\\&", text)
	gsub(/\001/, "\\", text)
	return text
}

# short PACKAGE: without the module's name in front.
function short(package) { return package ~ /\// ? substr(package, index(package, "/") + 1) : package }

function keep(key, text) {
	if (++lines[key] <= 400) output[key] = output[key] text
	else if (lines[key] == 401) output[key] = output[key] "    … (the rest is in build/test/go-test.json)\n"
}

BEGIN { while ((getline < allowed) > 0) if (!/^#/) may[$1 " " $2] = 1 }

{ action = field("Action"); package = field("Package"); test = field("Test"); key = package " " test }

action == "output" {
	text = unescape(field("Output"))
	if (text !~ /^ *(=== |--- )/) {
		keep(key, text)
		if (test != "" && text ~ /_test\.go:[0-9]+: /) {
			last[key] = text
			if (++said[key] <= 40) brief[key] = brief[key] substr(text, 1, 200) (length(text) > 200 ? "\n" : "")
		}
	}
}
action == "build-output" { printf "%s", unescape(field("Output")) }

test != "" && action == "pass" { passed++; tests[package]++ }
test != "" && action == "fail" {
	failed++; tests[package]++; broken[package] = 1
	printf "--- FAIL: %s (%s)\n%s", test, short(package), output[key]
	names = names sprintf("failed: %s (%s)\n%s", test, short(package), brief[key])
}
test != "" && action == "skip" {
	reason = last[key]; sub(/^ *[^ ]*: /, "", reason); sub(/\n$/, "", reason)
	whole = test; sub(/\/.*/, "", whole)
	if (may[short(package) " " whole] || reason ~ /^GODWIT_GUESTS=off/) {
		skipped++
		skips = skips sprintf("skipped: %s %s: %s\n", short(package), test, reason)
	} else {
		failed++
		text = sprintf("    it skipped, which %s does not allow: %s\n", allowed, reason)
		printf "--- FAIL: %s (%s)\n%s", test, short(package), text
		names = names sprintf("failed: %s (%s)\n%s", test, short(package), text)
	}
}
test != "" && action ~ /^(pass|fail|skip)$/ { delete output[key]; delete last[key]; delete brief[key]; delete said[key] }

test == "" && package != "" && action == "fail" {
	if (!broken[package]) {
		failed++
		printf "--- FAIL: package %s\n%s", short(package), output[key]
		names = names sprintf("failed: package %s\n", short(package))
	}
}
test == "" && package != "" && action ~ /^(pass|fail)$/ && (tests[package] || action == "fail") {
	match($0, /"Elapsed":[0-9.]+/)
	printf "%-5s %-32s %4d tests %7.1f s\n", action == "pass" ? "ok" : "FAIL", short(package), tests[package], substr($0, RSTART + 10, RLENGTH - 10)
	fflush()
}

END {
	printf "%s%s", skips, names
	printf "%s", names > failures
	printf "%d %d %d\n", passed, failed, skipped > counts
}
