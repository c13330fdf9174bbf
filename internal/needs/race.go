//go:build race

package needs

const underRace = true
