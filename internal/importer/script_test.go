package importer

import "testing"

// TestMegatronScripts: what a comment says makes no script of a file.
func TestMegatronScripts(t *testing.T) {
	const options = "--num-layers 2 --hidden-size 64 --num-attention-heads 4"
	for text, want := range map[string]bool{
		"python pretrain_gpt.py " + options:                        true,
		"#!/bin/bash\nARGS=(" + options + ") # all\n":              true,
		"memplan: 1\nname: x # replaces " + options + "\n":         false,
		"x: 1\n# " + options + "\n":                                false,
		"memplan: 1\nname: \"" + options + "\"\n":                  false,
		"MODEL_ARGS:\n  --num-layers: 2\n  --hidden-size: 64\n#\n": false,
	} {
		if got := isMegatronScript([]byte(text)); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}
