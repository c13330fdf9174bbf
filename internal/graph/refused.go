package graph

// packed says why packed sequences are refused.
const packed = "packed sequences are not modelled: how much memory they take depends on the lengths in each batch; pass the padded batch to the layer itself, which takes at least as much"

// refused are names of PyTorch that a spec cannot use, and why.
var refused = map[string]string{
	"pack_padded_sequence": packed, "pad_packed_sequence": packed, "pack_sequence": packed, "unpack_sequence": packed, "PackedSequence": packed,
}
