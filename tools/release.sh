#!/bin/sh
# Makes a release of the commit that is checked out, with this goreleaser:
#
#	tools/release.sh MODULE@VERSION check      builds all of it, in dist/ and once more from a
#	                                           clone elsewhere with an empty cache, and tests it
#	tools/release.sh MODULE@VERSION publish    publishes what was checked
#
# Where no tag is checked out, check builds a snapshot.
set -eu
goreleaser=$1 what=$2
cd "$(dirname "$0")/.."
if [ -n "$(git status --porcelain)" ]; then
	echo "release: commit first: a release is built from a commit"
	exit 1
fi
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT

if tag=$(git describe --tags --exact-match --match 'v*' 2>/dev/null); then
	go run ./tools/release changes "$tag" >"$temp/notes.md"
	set -- --release-notes "$temp/notes.md"
	if [ "$what" = check ]; then set -- "$@" --skip=publish; fi
elif [ "$what" = check ]; then
	set -- --snapshot
else
	echo "release: no tag is checked out"
	exit 1
fi
GOBIN="$temp" go install "$goreleaser"

if [ "$what" = publish ]; then
	go run ./tools/release check dist
	rm -rf bin/checked
	mv dist bin/checked
	"$temp/goreleaser" release "$@"
	go run ./tools/release wrap dist
	go run ./tools/release same bin/checked dist
	exit
fi

"$temp/goreleaser" release --clean "$@"
go run ./tools/release wrap dist
go run ./tools/release check dist

git clone -q . "$temp/memplan"
cd "$temp/memplan"
GOCACHE="$temp/cache" "$temp/goreleaser" release "$@"
go run ./tools/release wrap dist
cd "$OLDPWD"
go run ./tools/release same dist "$temp/memplan/dist"
