package exporttorch

import (
	_ "embed"
	"strings"
)

// What stands for functions of other libraries in a script, so that it needs PyTorch
// alone: their kernels are replaced by tensors like those that they write into.
var (
	//go:embed python/flash_attn.py
	flashAttnPython string
	//go:embed python/flash_attn_3.py
	flashAttn3Python string
	//go:embed python/nonzero_count.py
	nonzeroCountPython string
	//go:embed python/to_autocast.py
	toAutocastPython string
	//go:embed python/launch.py
	launchPython string
	//go:embed python/require_half.py
	requireHalfPython string
	//go:embed python/empty_per_multiprocessor.py
	multiprocessorPython string
	//go:embed python/under_autocast.py
	underAutocastPython string
	//go:embed python/without_adapters.py
	withoutAdaptersPython string
	//go:embed python/alternating_contexts.py
	alternatingPython string
)

// helpers are those functions, as signatures of operators and calls of models have them, by
// the text that defines them.
var helpers = []struct{ prefix, text string }{
	{"_flash_attn_", flashAttnPython},
	{"_flash_attn3_", flashAttn3Python},
	{"nonzero_count", nonzeroCountPython},
	{"to_autocast", toAutocastPython},
	{"launch", launchPython},
	{"require_half", requireHalfPython},
	{"empty_per_multiprocessor", multiprocessorPython},
	{"under_autocast", underAutocastPython},
	{"without_adapters", withoutAdaptersPython},
	{"alternating_contexts", alternatingPython},
}

// calls notes that a function is called.
func (s *script) calls(python string) {
	for i, h := range helpers {
		if strings.HasPrefix(python, h.prefix) {
			s.helps[i] = true
		}
	}
}

// libraryFunctions prints the functions that are called.
func (s *script) libraryFunctions() {
	for i, h := range helpers {
		if s.needs[i] {
			s.b.WriteString(h.text)
		}
	}
}
