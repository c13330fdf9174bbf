#!/bin/sh
# Measures the command from start to exit on the default job, and its peak
# resident memory: the best and the median of 20 runs.
set -eu
cd "$(dirname "$0")/.."
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
go build -o "$bin/memplan" ./cmd/memplan
go run ./tools/startup "$bin/memplan" estimate --format json
