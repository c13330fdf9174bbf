//go:build race

package needs

// Race says that the race detector is on, which makes tests ten times as slow.
const Race = true
