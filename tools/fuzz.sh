#!/bin/sh
# Runs every fuzz target of the module for a while (default 5 s each).
set -eu
cd "$(dirname "$0")/.."
time=${1:-5s}
for pkg in $(go list ./...); do
	for target in $(go test -list '^Fuzz' "$pkg" | grep '^Fuzz' || true); do
		echo "== $pkg $target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$pkg"
	done
done
