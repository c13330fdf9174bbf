package archtest

import (
	"go/token"
	"go/types"
	"path/filepath"
	"strings"
	"testing"
)

// fileLayers are packages whose parts refer to one another too much to be packages:
// their files from the lowest layer to the highest. A file uses the functions, methods,
// types and variables of its own layer and of those below.
var fileLayers = map[string][]string{
	"internal/graph": {
		"same",
		// entries, blocks and modules hold one another
		"elaborate models names scope unroll loop every size fn holder operand expression index python forward grad convert tuple args inputs place call modules stand uncalled autograd checkpoint fsdp_types tensorparallel",
		// the statements of a step and of an evaluation
		"step before mode closure keep gradsync eval ema",
		// the job: models of presets and files, optimizers, data, and what changes models
		"job data trainer loops megatron megatron_moe megatron_pipeline compiled optimizers rates techniques idle check check_blocks answer refused vocabulary deepspeed doc",
	},
}

// TestFileLayers: no file uses what stands in a layer above its own.
func TestFileLayers(t *testing.T) {
	for dir, layers := range fileLayers {
		layer := map[string]int{}
		for i, files := range layers {
			for _, f := range strings.Fields(files) {
				layer[f+".go"] = i
			}
		}
		for _, p := range typed(t, dir) {
			if p.path != dir {
				continue
			}
			file := func(at token.Pos) string { return filepath.Base(p.fset.Position(at).Filename) }
			for _, f := range p.files {
				if _, ok := layer[file(f.Pos())]; !ok {
					t.Errorf("%s/%s has no layer", dir, file(f.Pos()))
				}
			}
			if len(p.files) != len(layer) {
				t.Errorf("%s has %d files, and %d have a layer", dir, len(p.files), len(layer))
			}
			seen := map[string]bool{}
			for id, o := range p.info.Uses {
				_, method := o.(*types.Func)
				if o.Pkg() == nil || o.Pkg().Path() != module+dir || !method && o.Parent() != o.Pkg().Scope() {
					continue
				}
				from, to := file(id.Pos()), file(o.Pos())
				if arrow := from + o.Name(); layer[to] > layer[from] && !seen[arrow] {
					seen[arrow] = true
					t.Errorf("%v: %s of %s is above", p.fset.Position(id.Pos()), o.Name(), to)
				}
			}
		}
	}
}
