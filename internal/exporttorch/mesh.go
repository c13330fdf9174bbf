package exporttorch

import (
	"fmt"
	"strings"

	"github.com/memplan/memplan/internal/program"
)

// mesh prints the mesh of devices of FSDP2 and of tensor parallelism. With both its dimensions
// have names, by which the calls take their own.
func (s *script) mesh() {
	var sizes, names []string
	dimension := func(size int64, name string) {
		sizes, names = append(sizes, fmt.Sprint(size)), append(names, `"`+name+`"`)
	}
	f, t := s.job.Parallel.FSDP, s.job.Parallel.TP
	if f != nil && f.Replicas > 1 {
		dimension(f.Replicas, "replicate")
	}
	if f != nil {
		dimension(f.Shards, "shard")
	}
	if t != nil {
		dimension(t.Ranks, "tp")
	}
	if len(sizes) == 1 {
		s.printf("mesh = init_device_mesh(\"cuda\", (%s,))", sizes[0])
		return
	}
	s.printf("mesh = init_device_mesh(\"cuda\", (%s), mesh_dim_names=(%s))", strings.Join(sizes, ", "), strings.Join(names, ", "))
}

// dataMesh is the mesh over which fully_shard divides parameters.
func dataMesh(p *program.Parallel) string {
	switch {
	case p.Pipeline != nil:
		return `mesh["dp"]`
	case p.TP == nil:
		return "mesh"
	case p.FSDP.Replicas > 1:
		return `mesh["replicate", "shard"]`
	}
	return `mesh["shard"]`
}

// tensorMesh is the mesh over which parallelize_module divides modules.
func tensorMesh(p *program.Parallel) string {
	if p.FSDP == nil {
		return "mesh"
	}
	return `mesh["tp"]`
}
