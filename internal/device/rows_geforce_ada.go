package device

// geForceAda lists NVIDIA's consumer GPUs of Ada Lovelace. Totals are of Linux; see the package's text for Windows. GPUs with the same memory
// report the same total to about 30 MiB with the same driver.
var geForceAda = []GPU{
	{
		Name: "rtx-4050-laptop", Display: "NVIDIA GeForce RTX 4050 Laptop",
		Aliases:     []string{"rtx-4050"},
		MarketedGiB: 6, Arch: 89, SMs: 20,
		SMsSource: "hashcat; hmc-tech.com",
		Total: mib(5796, 5781, 5898,
			"PyTorch 2.13.0+cu130 (2026): 5.67 GiB; OOM message naming the RTX 4050 (2026): 5.65 GiB; hashcat, CUDA 12.4 (2024): 5898 MB"),
	},
	{
		Name: "rtx-4060", Display: "NVIDIA GeForce RTX 4060 8GB",
		Aliases:     []string{"rtx-4060-8gb", "rtx-4060-laptop"},
		MarketedGiB: 8, Arch: 89, SMs: 24,
		SMsSource: "NVIDIA's Ada specifications (2023): 3072 CUDA cores, 128 in each SM",
		Total: mib(7803, 7803, 7936,
			"vLLM log naming the RTX 4060 (2026): 7.62 GiB; xMem, torch 2.6.0+cu124 (2025): 8318222336 B; "+
				"ESRSchao/EdgeRegNet#2 (2025-04), laptop: 7.75 GiB"),
		Context: mib(115, 90, 160,
			"OOM message, ESRSchao/EdgeRegNet#2 (2025-04), laptop: 115 MiB; 8 GB cards on 7.63 GiB that name no model (2024 to 2026): 92, 113, 161"),
	},
	{
		Name: "rtx-4060-ti-8gb", Display: "NVIDIA GeForce RTX 4060 Ti 8GB", Family: "rtx-4060-ti",
		MarketedGiB: 8, Arch: 89, SMs: 34,
		SMsSource: "arover.net, review (2023): 34 RT cores, one in each SM",
		Total: mib(7806, 7803, 7940,
			"Ultralytics on torch 2.12.1+cu130 (2026): 7806MiB; range of rtx-4060, the same memory"),
	},
	{
		Name: "rtx-4060-ti-16gb", Display: "NVIDIA GeForce RTX 4060 Ti 16GB", Family: "rtx-4060-ti",
		MarketedGiB: 16, Arch: 89, SMs: 34,
		SMsSource: "arover.net, review of the 8 GB card (2023): 34 RT cores, one in each SM",
		Total: likely(15944, 15900, 16080,
			"rtx-4080-super, the same memory"),
	},
	{
		Name: "rtx-4070", Display: "NVIDIA GeForce RTX 4070",
		MarketedGiB: 12, Arch: 89, SMs: 46,
		SMsSource: "thefpsreview.com",
		Total: mib(11866, 11832, 12002,
			"llama.cpp on Linux (2026): 11866 and 11903 MiB; OOM message naming the RTX 4070 (2025): 11.56 GiB;"+
				"Ultralytics on torch 2.5.1+cu124 (2024): 12002MiB; YOLOv5, torch 1.13.0 (2025-01): 11994MiB"),
	},
	{
		Name: "rtx-4070-super", Display: "NVIDIA GeForce RTX 4070 SUPER",
		MarketedGiB: 12, Arch: 89, SMs: 56,
		SMsSource: "techpowerup.com, review (2024)",
		Total: likely(11866, 11832, 12007,
			"rtx-4070, the same memory"),
	},
	{
		Name: "rtx-4070-ti", Display: "NVIDIA GeForce RTX 4070 Ti",
		MarketedGiB: 12, Arch: 89, SMs: 60,
		SMsSource: "fpsbench.com",
		Total: likely(11866, 11832, 12007,
			"rtx-4070, the same memory, with drivers since 2025; YOLOv5, torch 2.1.1 (2023-12): 12007MiB"),
	},
	{
		Name: "rtx-4070-ti-super", Display: "NVIDIA GeForce RTX 4070 Ti SUPER",
		MarketedGiB: 16, Arch: 89, SMs: 66,
		SMsSource: "svethardware.cz (2024): 8448 CUDA cores, 128 in each SM",
		Total: likely(15944, 15900, 16069,
			"rtx-4080-super, the same memory, with drivers since 2025; Ultralytics on torch 2.0.0 (2024): 16069MiB"),
	},
	{
		Name: "rtx-4070-laptop", Display: "NVIDIA GeForce RTX 4070 Laptop",
		MarketedGiB: 8, Arch: 89, SMs: 36,
		SMsSource: "hmc-tech.com",
		Total: mib(7806, 7803, 7940,
			"Ultralytics on torch 2.7.1+cu128 (2025): 7806MiB; range of rtx-4060, the same memory"),
	},
	{
		Name: "rtx-4080", Display: "NVIDIA GeForce RTX 4080",
		MarketedGiB: 16, Arch: 89, SMs: 76,
		SMsSource: "telepolis.pl (2023)",
		Total: likely(15944, 15900, 16080,
			"rtx-4080-super, the same memory"),
	},
	{
		Name: "rtx-4080-super", Display: "NVIDIA GeForce RTX 4080 SUPER",
		MarketedGiB: 16, Arch: 89, SMs: 80,
		SMsSource: "svethardware.cz (2024): 10240 CUDA cores, 128 in each SM",
		Total: mib(15944, 15944, 16080,
			"Ultralytics on torch 2.12.1+cu130 (2026-07): 15944MiB; high end assumed from older drivers of rtx-4070-ti-super"),
	},
	{
		Name: "rtx-4080-laptop", Display: "NVIDIA GeForce RTX 4080 Laptop",
		MarketedGiB: 12, Arch: 89, SMs: 58,
		SMsSource: "notebookcheck.com: 58 RT cores, one in each SM",
		Total: likely(11866, 11832, 12007,
			"rtx-4070, the same memory"),
	},
	{
		Name: "rtx-4090", Display: "NVIDIA GeForce RTX 4090",
		Aliases:     []string{"rtx-4090-24gb"},
		MarketedGiB: 24, Arch: 89, SMs: 128,
		SMsSource: "fpsbench.com",
		Total: mib(24084, 24074, 24248,
			"pytorch/torchchat#1341 (2024-11), driver 560.35.03: 23.52 GiB, the same with driver 595.84 (2026); "+
				"Unsloth on torch 2.10.0+cu130 (2026-02): 23.51 GiB; deepseek-ai/DeepSeek-V3#205 (2025-01): 23.64 GiB; "+
				"Unsloth on torch 2.8.0+cu128 (2025-10): 23.647 GiB; zai-org/CogVideo#36 (2023-05): 23.68 GiB"),
		Context: mib(475, 380, 565,
			"OOM messages: pytorch/torchchat#1341 (2024-11): 495 MiB; pinokiofactory/flux-webui#11 (2024-08): 473; "+
				"3DTopia/Phidias-Diffusion#8 (2025-08): 504; logs on 23.64 GiB (2025): 379 (text generation) to 461; "+
				"Whisper training on 23.51 GiB (2026): 565"),
	},
	{
		Name: "rtx-4090-d", Display: "NVIDIA GeForce RTX 4090 D",
		MarketedGiB: 24, Arch: 89, SMs: 114,
		SMsSource: "hmc-tech.com: 14592 CUDA cores, 128 in each SM",
		Total: likely(24084, 24074, 24248,
			"rtx-4090, the same memory"),
	},
	{
		Name: "rtx-4090-laptop", Display: "NVIDIA GeForce RTX 4090 Laptop",
		MarketedGiB: 16, Arch: 89, SMs: 76,
		SMsSource: "driver API; hmc-tech.com",
		Total: likely(15944, 15900, 16080,
			"rtx-4080-super, the same memory"),
	},
}
