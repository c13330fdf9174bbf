package engine

import (
	"github.com/memplan/memplan/internal/op"
	"github.com/memplan/memplan/internal/program"
)

// PlayRounds is Play where each round of a step is played, or, with leaveOut, as it is. It
// returns how many rounds were left out.
func PlayRounds(prog *program.Job, env op.Env, steps int, leaveOut bool) (*Played, int, error) {
	j := newJob(nil, prog, env, nil)
	if !leaveOut {
		j.of.N = 0
	}
	p, err := j.play(steps, nil)
	return p, j.leftOut, err
}
