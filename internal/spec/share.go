package spec

import "slices"

// Inherit adds the params of another file to those of s, but for those that s has
// itself: the blocks that Share adds use them.
func (s *Spec) Inherit(from *Spec) {
	to, more := s.Env.(*paramEnv), from.Env.(*paramEnv)
	for _, n := range more.names {
		if !slices.Contains(to.names, n) {
			to.names = append(to.names, n)
			to.vals[n] = more.vals[n]
		}
	}
}

// Share adds the blocks of another file to those of s's model, but for those
// whose names s has itself.
func (s *Spec) Share(from *Spec) {
	own := map[string]bool{}
	for _, b := range s.Model.Blocks {
		if b.V.Of == nil {
			b.V.Of = s
		}
		own[b.Name.V] = true
	}
	for _, b := range from.Model.Blocks {
		if !own[b.Name.V] {
			if b.V.Of == nil {
				b.V.Of = from
			}
			s.Model.Blocks = append(s.Model.Blocks, b)
		}
	}
	more := from.root.Get("model").Get("blocks")
	if more == nil {
		return
	}
	model := s.root.Get("model")
	blocks := model.Get("blocks")
	if blocks == nil {
		blocks = &Value{Kind: Map}
		model.Pairs = append(model.Pairs, Pair{&Value{Kind: Str, Str: "blocks"}, blocks})
	}
	for _, p := range more.Pairs {
		if !own[p.Key.Str] {
			blocks.Pairs = append(blocks.Pairs, p)
		}
	}
}

// AddBlocks adds the blocks at the top of another file to those of s, of which it has
// none.
func (s *Spec) AddBlocks(from *Spec) {
	s.Blocks = append(s.Blocks, from.Blocks...)
	if to, more := s.root.Get("blocks"), from.root.Get("blocks"); to != nil && more != nil {
		to.Pairs = append(to.Pairs, more.Pairs...)
	}
}
