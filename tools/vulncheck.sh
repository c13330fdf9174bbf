#!/bin/sh
# Looks for known vulnerabilities in the functions that memplan calls, and fails
# if there is one. Where the database cannot be reached it says so: nothing is
# checked then.
set -eu
go=$1 tool=$2
out=$(mktemp)
trap 'rm -f "$out"' EXIT
code=0
"$go" run "$tool" ./... >"$out" 2>&1 || code=$?
cat "$out"
if [ "$code" != 0 ] && grep -q '^govulncheck: fetching vulnerabilities: .*\(no such host\|dial tcp\|connection refused\|timeout\)' "$out"; then
	echo "NOT CHECKED: the database of vulnerabilities cannot be reached from here"
	exit 0
fi
exit "$code"
