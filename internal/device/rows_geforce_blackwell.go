package device

// geForceBlackwell lists NVIDIA's consumer GPUs of Blackwell, for which PyTorch
// has kernels since 2.7 (wheels of CUDA 12.8). Totals are of
// Linux; see the package's text for Windows, where nvidia-smi's figure counts,
// which is 460 to 500 MiB more.
var geForceBlackwell = []GPU{
	{
		Name: "rtx-5050", Display: "NVIDIA GeForce RTX 5050",
		Aliases:     []string{"rtx-5050-8gb", "rtx-5050-laptop"},
		MarketedGiB: 8, Arch: 120, SMs: 20,
		SMsSource: "hmc-tech.com: RTX 5050 Laptop",
		Total: likely(7688, 7640, 7720,
			"nvidia-smi shows 8151 MiB (2025 to 2026), of which CUDA gives 463 less on rtx-5060-ti-16gb, the same architecture"),
	},
	{
		Name: "rtx-5060", Display: "NVIDIA GeForce RTX 5060",
		Aliases:     []string{"rtx-5060-8gb"},
		MarketedGiB: 8, Arch: 120, SMs: 30,
		Total: likely(7688, 7640, 7720,
			"nvidia-smi shows 8151 MiB (2025 to 2026), of which CUDA gives 463 less on rtx-5060-ti-16gb, the same architecture"),
	},
	{
		Name: "rtx-5060-laptop", Display: "NVIDIA GeForce RTX 5060 Laptop",
		MarketedGiB: 8, Arch: 120, SMs: 26,
		SMsSource: "fpsbench.com",
		Total: likely(7688, 7640, 7720,
			"nvidia-smi shows 8151 MiB (2025 to 2026), of which CUDA gives 463 less on rtx-5060-ti-16gb, the same architecture"),
	},
	{
		Name: "rtx-5060-ti-8gb", Display: "NVIDIA GeForce RTX 5060 Ti 8GB", Family: "rtx-5060-ti",
		MarketedGiB: 8, Arch: 120, SMs: 36,
		SMsSource: "fpsbench.com, of the 16 GB card",
		Total: likely(7688, 7640, 7720,
			"nvidia-smi shows 8151 MiB (2025 to 2026), of which CUDA gives 463 less on rtx-5060-ti-16gb, the same architecture"),
	},
	{
		Name: "rtx-5060-ti-16gb", Display: "NVIDIA GeForce RTX 5060 Ti 16GB", Family: "rtx-5060-ti",
		MarketedGiB: 16, Arch: 120, SMs: 36,
		SMsSource: "fpsbench.com",
		Total: mib(15848, 15825, 15850,
			"Ultralytics on torch 2.10.0+cu128 and 2.12.0+cu130 (2026): 15848MiB; others (2026): 15850MiB; llama.cpp (2026): 15825 to 15850 MiB"),
	},
	{
		Name: "rtx-5070", Display: "NVIDIA GeForce RTX 5070",
		MarketedGiB: 12, Arch: 120, SMs: 48,
		SMsSource: "worldnl.com, review (2025)",
		Total: mib(11776, 11740, 11802,
			"torch 2.11 and 2.12 nightlies on Linux (2026): 11.5 GB; OOM message of a 12 GB GPU, torch 2.11.0+cu128 (2026-05): 11.50 GiB"),
	},
	{
		Name: "rtx-5070-laptop", Display: "NVIDIA GeForce RTX 5070 Laptop",
		MarketedGiB: 8, Arch: 120, SMs: 36,
		SMsSource: "neowin.net on NVIDIA at CES (2025): 4608 CUDA cores, 128 in each SM",
		Total: likely(7688, 7640, 7720,
			"nvidia-smi shows 8151 MiB (2025 to 2026), of which CUDA gives 463 less on rtx-5060-ti-16gb, the same architecture"),
	},
	{
		Name: "rtx-5070-ti", Display: "NVIDIA GeForce RTX 5070 Ti",
		MarketedGiB: 16, Arch: 120, SMs: 70,
		Total: mib(15842, 15808, 15842,
			"llama.cpp on Linux (2026): 15842 and 15808 MiB"),
	},
	{
		Name: "rtx-5070-ti-laptop", Display: "NVIDIA GeForce RTX 5070 Ti Laptop",
		MarketedGiB: 12, Arch: 120, SMs: 46,
		SMsSource: "neowin.net on NVIDIA at CES (2025): 5888 CUDA cores, 128 in each SM",
		Total: likely(11776, 11740, 11802,
			"rtx-5070, the same memory"),
	},
	{
		Name: "rtx-5080", Display: "NVIDIA GeForce RTX 5080",
		MarketedGiB: 16, Arch: 120, SMs: 84,
		SMsSource: "brojogopalsapui.com, after NVIDIA's Blackwell whitepaper",
		Total: mib(15840, 15808, 15846,
			"training notes naming the RTX 5080 (2026): CUDA:0 15840MiB; OOM message (2026): 15.47 GiB; low end of rtx-5070-ti, the same memory"),
	},
	{
		Name: "rtx-5080-laptop", Display: "NVIDIA GeForce RTX 5080 Laptop",
		MarketedGiB: 16, Arch: 120, SMs: 60,
		SMsSource: "neowin.net on NVIDIA at CES (2025): 7680 CUDA cores, 128 in each SM",
		Total: likely(15840, 15800, 15850,
			"rtx-5080, the same memory"),
	},
	{
		Name: "rtx-5090", Display: "NVIDIA GeForce RTX 5090",
		Aliases:     []string{"rtx-5090-32gb"},
		MarketedGiB: 32, Arch: 120, SMs: 170,
		SMsSource: "deviceQuery",
		Total: mib(32109, 32090, 32122,
			"PyTorch's allocator warning \"total: 33668857856\", 31.36 GiB in OOM messages (2026); deviceQuery, driver 570.133.04 (2025): 33677180928 B;"+
				"Ultralytics on torch 2.12.0+cu130 (2026): 32102MiB; llama.cpp (2026): 32109, 32119 MiB; OOM messages (2025 to 2026): 31.34 GiB"),
		Context: mib(595, 500, 700,
			"OOM messages: Wan-Video/Wan2.1#465 (2025-07): 595 MiB; vLLM, weights loading (2026-04): 654; range assumed around them"),
	},
	{
		Name: "rtx-5090-laptop", Display: "NVIDIA GeForce RTX 5090 Laptop",
		MarketedGiB: 24, Arch: 120, SMs: 82,
		SMsSource: "driver; neowin.net on NVIDIA at CES (2025): 10496 CUDA cores",
		Total: likely(23985, 23900, 24010,
			"nvidia-smi shows 24463 MiB (2026), of which CUDA gives 463 to 493 less on rtx-5080 and rtx-5090; a listing with driver 580 (2026): 23.4 GB"),
	},
}
