// Recordings and specs for tests: a module of its own, so that the one that
// users fetch is small (internal/needs finds it, tools/release measures).
module github.com/memplan/memplan/testdata

go 1.26.0
