#!/bin/sh
# Runs every fuzz target of the module for a while (default 5 s each), or one of them. An input that
# is new is made smaller in a few runs: by default Go spends up to a minute on one, and
# tries nothing else.
set -eu
cd "$(dirname "$0")/.."
time=${1:-5s} cores=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)

# With a package and a target it fuzzes that one. Go before 1.27 may take the end of its
# own time for a failure (golang/go#75804): that says "context deadline exceeded" and
# nothing else, and the target is run again; what fails in any other way has failed.
if [ $# = 3 ]; then
	out=$(mktemp)
	trap 'rm -f "$out"' EXIT
	for try in 1 2 3; do
		if go test -vet=off -run '^$' -fuzz "^$3\$" -fuzztime "$time" -fuzzminimizetime 10x -parallel 1 "$2" </dev/null >"$out" 2>&1; then
			echo "== $2 $3" | cat - "$out"
			exit
		fi
		echo "== $2 $3" | cat - "$out"
		[ "$(sed -n '/^--- FAIL/,/^FAIL/p' "$out" | sed '1d;$d' | tr -d ' \t\n')" = contextdeadlineexceeded ] || exit 1
		echo "== $2 $3: the time was over, and nothing was found; again"
	done
	exit 1
fi

# What all of them need is compiled once, before as many run at a time as there are cores.
go test -c -vet=off -fuzz . -o /dev/null ./internal/cli
grep -ro '^func Fuzz[A-Za-z0-9_]*' --include='*_test.go' . | sort | sed 's|/[^/]*:func | |' |
	xargs -P "$cores" -n 2 tools/fuzz.sh "$time"
