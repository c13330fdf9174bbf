package main

import (
	"fmt"
	"strings"
)

// configured draws a program of another kind under options of the caching
// allocator, whose peaks of reserved memory must be those that PyTorch has.
func configured(g *generator, seed uint64) (text, arch string) {
	for range 200 {
		switch {
		case g.chance(0.5):
			text, arch = g.preset(seed)
		case g.chance(0.5):
			text, arch = options(g, seed)
		default:
			text, arch = g.spec(seed)
		}
		text += fmt.Sprintf("device: {alloc_conf: %q}\n", strings.Join(g.allocConf(), ","))
		if built(text, arch) != nil {
			return text, arch
		}
		g.blocks, g.nBlock = nil, 0
	}
	return text, arch
}

func (g *generator) allocConf() []string {
	conf := g.maybe(0.5, "expandable_segments:True")
	if len(conf) == 0 {
		conf = g.maybe(0.6, "max_split_size_mb:21", "max_split_size_mb:32", "max_split_size_mb:64", "max_split_size_mb:128")
	}
	conf = append(conf, g.maybe(0.5, "roundup_power2_divisions:2", "roundup_power2_divisions:4", "roundup_power2_divisions:8",
		"roundup_power2_divisions:[1:8,16:4,256:2,>:1]", "roundup_power2_divisions:[64:8,256:4,1024:4,>:1]")...)
	if len(conf) == 0 {
		conf = append(conf, "max_split_size_mb:24")
	}
	return conf
}
