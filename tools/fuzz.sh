#!/bin/sh
# Runs every fuzz target of the module for a while (default 5 s each). An input that
# is new is made smaller in a few runs: by default Go spends up to a minute on one, and
# tries nothing else.
set -eu
cd "$(dirname "$0")/.."
time=${1:-5s}
out=$(mktemp)
trap 'rm -f "$out"' EXIT

# run PACKAGE TARGET fuzzes one target. Go before 1.27 may take the end of its own time
# for a failure (golang/go#75804): that says "context deadline exceeded" and nothing
# else, and the target is run again; what fails in any other way has failed.
run() {
	for try in 1 2 3; do
		if go test -run '^$' -fuzz "^$2\$" -fuzztime "$time" -fuzzminimizetime 10x "$1" </dev/null >"$out" 2>&1; then
			cat "$out"
			return
		fi
		cat "$out"
		[ "$(sed -n '/^--- FAIL/,/^FAIL/p' "$out" | sed '1d;$d' | tr -d ' \t\n')" = contextdeadlineexceeded ] || return 1
		echo "== $1 $2: the time was over, and nothing was found; again"
	done
	return 1
}

targets=$(grep -ro '^func Fuzz[A-Za-z0-9_]*' --include='*_test.go' . | sort)
for line in $(echo "$targets" | tr ' ' '/'); do
	file=${line%%:*} func=${line#*:func/}
	echo "== ${file%/*} $func"
	run "${file%/*}" "$func"
done
