#!/bin/sh
# Runs every fuzz target of the module for a while (default 5 s each). An input that
# is new is made smaller in a few runs: by default Go spends up to a minute on one, and
# tries nothing else.
set -eu
cd "$(dirname "$0")/.."
time=${1:-5s}
targets=$(grep -ro '^func Fuzz[A-Za-z0-9_]*' --include='*_test.go' . | sort)
echo "$targets" | while IFS=: read -r file func; do
	pkg=${file%/*} target=${func#func }
	echo "== $pkg $target"
	go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 10x "$pkg" </dev/null
done
