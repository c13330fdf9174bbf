package gate

import "strings"

// isPreset reports a spec that comes with memplan, as the command line names it.
func isPreset(path string) bool { return strings.HasPrefix(path, "preset:") }

// isFile reports whether a spec is a file of the user's, so that services can
// show a line of it.
func isFile(path string) bool { return !isPreset(path) && path != "<stdin>" }
