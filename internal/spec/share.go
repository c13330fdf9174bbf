package spec

// Share adds the blocks of another file to those of s's model.
func (s *Spec) Share(from *Spec) {
	for _, o := range []*Spec{s, from} {
		for _, b := range o.Model.Blocks {
			if b.V.Of == nil {
				b.V.Of = o
			}
		}
	}
	s.Model.Blocks = append(s.Model.Blocks, from.Model.Blocks...)
	blocks := from.root.Get("model").Get("blocks")
	model := s.root.Get("model")
	if own := model.Get("blocks"); own != nil {
		own.Pairs = append(own.Pairs, blocks.Pairs...)
		return
	}
	model.Pairs = append(model.Pairs, Pair{&Value{Kind: Str, Str: "blocks"}, blocks})
}
