//go:build !race

package needs

const underRace = false
