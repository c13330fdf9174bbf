package advise

// rate is how fast the GPUs of an architecture work, for each of their streaming
// multiprocessors, as the data sheet of one card has it.
type rate struct {
	arch      int
	full      float64 // operations a second on float32, outside of tensor cores
	half      float64 // on float16 or bfloat16 in tensor cores, with sums in float32
	memory    float64 // bytes a second
	link      float64 // bytes a second of PCI Express, of page-locked memory, for the whole card
	bfloat16  bool    // tensor cores know bfloat16
	dataSheet string  // the card
	sms       int     // of the card
}

// card makes a row from the figures of a card: TFLOPS, GB/s, multiprocessors.
func card(arch int, full, half, memory float64, sms int, link float64, name string) rate {
	n := float64(sms)
	return rate{arch, full * 1e12 / n, half * 1e12 / n, memory * 1e9 / n, link * 1e9, arch >= 80, name, sms}
}

// What of a PCI Express slot of 16 lanes is left for copies: generations 3, 4
// and 5 have 15.8, 31.5 and 63 GB/s, of which bandwidthTest of the CUDA samples
// reaches four fifths.
const (
	gen3 = 12.5
	gen4 = 25
	gen5 = 50
)

// rates is the table of architectures, in their order. Figures are those of
// NVIDIA's data sheets and architecture white papers, without sparsity.
var rates = []rate{
	card(60, 10.6, 21.2, 732, 56, gen3, "Tesla P100 SXM2"),
	card(61, 11.3, 11.3, 484, 28, gen3, "GeForce GTX 1080 Ti; float16 is slower than float32 there and is not used"),
	card(70, 15.7, 125, 900, 80, gen3, "Tesla V100 SXM2"),
	card(75, 8.1, 65, 320, 40, gen3, "Tesla T4"),
	card(80, 19.5, 312, 1555, 108, gen4, "A100 40GB"),
	card(86, 35.6, 71, 936, 82, gen4, "GeForce RTX 3090"),
	card(87, 5.3, 21, 205, 16, gen4, "Jetson AGX Orin; its CPU shares the memory"),
	card(89, 82.6, 165, 1008, 128, gen4, "GeForce RTX 4090"),
	card(90, 66.9, 989, 3350, 132, gen5, "H100 SXM"),
	card(100, 75, 2250, 8000, 148, gen5, "B200"),
	card(120, 104.8, 209.5, 1792, 170, gen5, "GeForce RTX 5090"),
}

// rateOf is the row of an architecture, or of the one before it.
func rateOf(arch int) rate {
	r := rates[0]
	for _, x := range rates {
		if x.arch <= arch {
			r = x
		}
	}
	return r
}

// What of the data sheet a training step reaches, and what else it waits for.
const (
	// fullShare and halfShare are of the peaks above. Large products of float32
	// come near the peak; tensor cores are fed less well: Megatron-LM reaches
	// half of the peak in whole steps (Narayanan et al. 2021, arXiv:2104.04473,
	// table 1: 44 to 52 %).
	fullShare, halfShare = 0.85, 0.5
	// memoryShare is what of a GPU's bandwidth kernels reach that read and write
	// large tensors (CUDA samples, bandwidthTest device to device: 0.8 to 0.9).
	memoryShare = 0.8
	// kernelTime is what every kernel costs beside its work, in seconds: launch and
	// the tail in which multiprocessors are idle ("launch latency", about 5 µs, in
	// NVIDIA's blog on CUDA graphs, Gray 2019).
	kernelTime = 5e-6
	// uses is how often a byte that a kernel writes to memory is moved: written
	// once, read by the operator behind it and by the backward pass.
	uses = 3
	// hostAdam is what the update of one parameter on the CPU takes, in seconds:
	// 1.39 s for a billion with torch.optim.Adam (Ren et al. 2021, ZeRO-Offload,
	// arXiv:2101.06840, table 4, PT-CPU).
	hostAdam = 1.39e-9
	// unpinned is what pageable memory leaves of a link: copies go through a
	// buffer of the driver (NVIDIA's blog on data transfers, Harris 2012: 2 to 2.5
	// times slower).
	unpinned = 0.4
)
