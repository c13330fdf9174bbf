//go:build !invariants

package allocsim

// checkInvariants does nothing in this build; see the build tag invariants.
func (a *Allocator) checkInvariants() {}
