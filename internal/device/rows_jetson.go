package device

// jetson lists NVIDIA's Orin modules, whose memory is unified: see the package's
// text. PyTorch's wheels have no kernels for them; NVIDIA's own do. torch prints
// the name "Orin" for each.
var jetson = []GPU{
	{
		Name: "jetson-orin-nano-8gb", Display: "NVIDIA Jetson Orin Nano 8GB", Family: "orin",
		Aliases:     []string{"jetson-orin-nano", "jetson-orin-nano-super"},
		MarketedGiB: 8, Arch: 87, SMs: 8, Unified: true,
		SMsSource: "brojogopalsapui.com, after NVIDIA's technical brief",
		Total: mib(7620, 7546, 7620,
			"Ultralytics on JetPack (2024 to 2025): 7620MiB; llama.cpp (2026): 7607 and 7619 MiB; torch 2.13.0+cu132 (2026): 7546MiB"),
	},
	{
		Name: "jetson-orin-nx-16gb", Display: "NVIDIA Jetson Orin NX 16GB", Family: "orin",
		Aliases:     []string{"jetson-orin-nx"},
		MarketedGiB: 16, Arch: 87, SMs: 8, Unified: true,
		SMsSource: "a user's list of hardware (gist): 1024 CUDA cores, 128 in each SM",
		Total: mib(15655, 15523, 15655,
			"Ultralytics on torch 2.8.0 (2026): 15655MiB; torch 2.1.0 of JetPack (2024): 15523MiB; both an Orin by its size"),
	},
	{
		Name: "jetson-agx-orin-32gb", Display: "NVIDIA Jetson AGX Orin 32GB", Family: "orin",
		MarketedGiB: 32, Arch: 87, SMs: 14, Unified: true,
		Total: mib(30697, 30600, 30800,
			"Ultralytics 8.3.78 (2025): 30697MiB, an Orin by its size; range assumed"),
	},
	{
		Name: "jetson-agx-orin-64gb", Display: "NVIDIA Jetson AGX Orin 64GB", Family: "orin",
		Aliases:     []string{"jetson-agx-orin"},
		MarketedGiB: 64, Arch: 87, SMs: 16, Unified: true,
		Total: mib(62827, 62700, 62900,
			"llama.cpp builds 7770 and 8762 (2026): 62827 MiB; range assumed"),
	},
}
