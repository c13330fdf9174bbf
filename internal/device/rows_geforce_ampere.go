package device

// geForceAmpere lists NVIDIA's consumer GPUs of Ampere. Totals are of Linux; see the package's text for Windows.
var geForceAmpere = []GPU{
	{
		Name: "rtx-3050-6gb", Display: "NVIDIA GeForce RTX 3050 6GB", Family: "rtx-3050",
		MarketedGiB: 6, Arch: 86, SMs: 18,
		Total: mib(5803, 5798, 5946,
			"llama.cpp (2026): 5803 MiB; high end of rtx-3060-laptop, the same memory"),
	},
	{
		Name: "rtx-3050-8gb", Display: "NVIDIA GeForce RTX 3050 8GB", Family: "rtx-3050",
		MarketedGiB: 8, Arch: 86, SMs: 20,
		SMsSource: "hashcat",
		Total: likely(7833, 7750, 7970,
			"rtx-3060-ti, the same memory"),
	},
	{
		Name: "rtx-3050-laptop-4gb", Display: "NVIDIA GeForce RTX 3050 Laptop 4GB", Family: "rtx-3050-laptop",
		MarketedGiB: 4, Arch: 86, SMs: 16,
		SMsSource: "hmc-tech.com: 2048 CUDA cores, 128 in each SM",
		Total: mib(3768, 3712, 3907,
			"OOM messages of 4 GB GPUs that name no model (2025 to 2026): 3.64 to 3.71 GiB, mostly 3.68;"+
				"YOLOv5, RTX 3050 Laptop, torch 2.0.1 (2023): 3902MiB"),
	},
	{
		Name: "rtx-3050-laptop-6gb", Display: "NVIDIA GeForce RTX 3050 Laptop 6GB", Family: "rtx-3050-laptop",
		Aliases:     []string{"GeForce RTX 3050 6GB Laptop GPU"},
		MarketedGiB: 6, Arch: 86, SMs: 20,
		SMsSource: "alldbin.com: 2560 CUDA cores, 128 in each SM",
		Total: likely(5803, 5780, 5946,
			"rtx-3050-6gb, the same memory"),
	},
	{
		Name: "rtx-3050-ti-laptop", Display: "NVIDIA GeForce RTX 3050 Ti Laptop",
		MarketedGiB: 4, Arch: 86, SMs: 20,
		SMsSource: "hmc-tech.com",
		Total: mib(3902, 3712, 3907,
			"Ultralytics on torch 2.4.1+cu124 (2025): 3902MiB; low end of rtx-3050-laptop-4gb, the same memory"),
	},
	{
		Name: "rtx-3060", Display: "NVIDIA GeForce RTX 3060 12GB",
		Aliases:     []string{"rtx-3060-12gb"},
		MarketedGiB: 12, Arch: 86, SMs: 28,
		SMsSource: "sysrqmts.com",
		Total: mib(11908, 11900, 12044,
			"nvidia-smi with CUDA (2026-08): 12288 MiB less 380 reserved is the 11.63 GiB of OOM messages; "+
				"get_device_properties: 11931MB (torch 2.4.1+cu124, 2024), 11900MB (later); "+
				"older drivers: 12622168064 B (xMem, torch 2.6.0+cu124, 2025), 12044MB"),
		Context: mib(120, 105, 160,
			"OOM messages naming the RTX 3060, 11.75 GiB, diffusers (2024 to 2025): 106 and 123 MiB; high end of rtx-4060, a smaller chip"),
	},
	{
		Name: "rtx-3060-laptop", Display: "NVIDIA GeForce RTX 3060 Laptop",
		MarketedGiB: 6, Arch: 86, SMs: 30,
		SMsSource: "hashcat",
		Total: mib(5806, 5801, 5946,
			"llama.cpp (2026): 5806 MiB; hashcat, CUDA 11.4 (2022): 5946 MB"),
	},
	{
		Name: "rtx-3060-ti", Display: "NVIDIA GeForce RTX 3060 Ti",
		MarketedGiB: 8, Arch: 86, SMs: 38,
		SMsSource: "hexus.net, review (2020): 4864 CUDA cores, 128 in each SM",
		Total: mib(7833, 7833, 7982,
			"Ultralytics on torch 2.11.0+cu130 (2026): 7833MiB; high end assumed from older drivers of rtx-2070-super, the same memory"),
	},
	{
		Name: "rtx-3070", Display: "NVIDIA GeForce RTX 3070",
		MarketedGiB: 8, Arch: 86, SMs: 46,
		SMsSource: "hexus.net (2020): 5888 CUDA cores, 128 in each SM",
		Total: mib(7819, 7753, 7982,
			"llama.cpp (2026): 7819 MiB; Ultralytics on torch 2.6.0+cu124 (2025): 7753MiB; high end of rtx-3060-ti"),
	},
	{
		Name: "rtx-3070-laptop", Display: "NVIDIA GeForce RTX 3070 Laptop",
		MarketedGiB: 8, Arch: 86, SMs: 40,
		SMsSource: "gamersinfotech.com (2021): 5120 CUDA cores, 128 in each SM",
		Total: likely(7850, 7753, 7982,
			"rtx-3070-ti-laptop, the same memory"),
	},
	{
		Name: "rtx-3070-ti", Display: "NVIDIA GeForce RTX 3070 Ti",
		MarketedGiB: 8, Arch: 86, SMs: 48,
		Total: mib(7840, 7840, 7982,
			"llama.cpp (2026): 7840 MiB; high end of rtx-3060-ti"),
	},
	{
		Name: "rtx-3070-ti-laptop", Display: "NVIDIA GeForce RTX 3070 Ti Laptop",
		MarketedGiB: 8, Arch: 86, SMs: 46,
		Total: mib(7850, 7840, 7982,
			"llama.cpp, gcc 11.4 on Linux (2026): 7850 MiB; high end of rtx-3060-ti"),
	},
	{
		Name: "rtx-3080-10gb", Display: "NVIDIA GeForce RTX 3080 10GB", Family: "rtx-3080",
		MarketedGiB: 10, Arch: 86, SMs: 68,
		SMsSource: "torch.cuda.get_device_properties",
		Total: mib(9872, 9851, 10019,
			"OOM messages naming the RTX 3080 (2025 to 2026): 9.62 and 9.65 GiB; total=10351935488 of a benchmark on 9.64 GiB (2026);"+
				"Ultralytics on torch 1.13.1 (2023): 10009MiB; size only (2025): 9.77 GiB"),
		Context: mib(265, 205, 290,
			"OOM messages on 9.64 and 9.65 GiB, a size of this GPU alone (2025 to 2026): ResNet-50 training: 263 MiB; MoE benchmark: 266; text embedding: 212"),
	},
	{
		Name: "rtx-3080-12gb", Display: "NVIDIA GeForce RTX 3080 12GB", Family: "rtx-3080",
		MarketedGiB: 12, Arch: 86, SMs: 70,
		SMsSource: "se7en.ws (2022): 70 RT cores, one in each SM",
		Total: likely(11911, 11900, 12117,
			"rtx-3080-ti, the same memory; deployment notes (2024 to 2026): CUDA:0 (NVIDIA GeForce RTX 3080, 12117MiB)"),
	},
	{
		Name: "rtx-3080-ti", Display: "NVIDIA GeForce RTX 3080 Ti",
		MarketedGiB: 12, Arch: 86, SMs: 80,
		SMsSource: "hkepc.com, review (2021)",
		Total: mib(11911, 11905, 12054,
			"YOLO log (2026-03): 11910.625MB; YOLOv5, torch 1.10 to 1.12 (2022 to 2024): 12054MiB"),
	},
	{
		Name: "rtx-3080-laptop-8gb", Display: "NVIDIA GeForce RTX 3080 Laptop 8GB", Family: "rtx-3080-laptop",
		MarketedGiB: 8, Arch: 86, SMs: 48,
		SMsSource: "torch.cuda.get_device_properties",
		Total: likely(7850, 7753, 7982,
			"rtx-3070-ti-laptop, the same memory"),
	},
	{
		Name: "rtx-3080-laptop-16gb", Display: "NVIDIA GeForce RTX 3080 Laptop 16GB", Family: "rtx-3080-laptop",
		MarketedGiB: 16, Arch: 86, SMs: 48,
		SMsSource: "gamersinfotech.com (2021): 6144 CUDA cores, 128 in each SM",
		Total: mib(16110, 15940, 16117,
			"Ultralytics on Linux, torch 2.3.0 (2024): 16110MiB; low end assumed from newer drivers of rtx-4080-super"),
	},
	{
		Name: "rtx-3080-ti-laptop", Display: "NVIDIA GeForce RTX 3080 Ti Laptop",
		MarketedGiB: 16, Arch: 86, SMs: 58,
		Total: likely(15967, 15900, 16117,
			"rtx-a4000, the same memory"),
	},
	{
		Name: "rtx-3090", Display: "NVIDIA GeForce RTX 3090",
		Aliases:     []string{"rtx-3090-24gb"},
		MarketedGiB: 24, Arch: 86, SMs: 82,
		SMsSource: "techpowerup.com (2020)",
		Total: mib(24128, 24125, 24259,
			"OOM messages naming the RTX 3090 (2025 to 2026): 23.56 GiB, vllm-project/vllm#26863 (2025-10): 23.57 GiB; "+
				"Unsloth on torch 2.7.1+cu126 (2025-08): 23.684 GiB; get_device_properties of an older driver: 24259MB"),
		Context: mib(320, 255, 350,
			"OOM messages: vllm-project/vllm#26863 (2025-10): 344 MiB; long-context inference log (2026): 347; training logs (2025): 307, 325; "+
				"bare context, invoke-ai/InvokeAI#9413 (2026-07), torch 2.7.1+cu128, driver 610: 256"),
	},
	{
		Name: "rtx-3090-ti", Display: "NVIDIA GeForce RTX 3090 Ti",
		Aliases:     []string{"rtx-3090-ti-24gb"},
		MarketedGiB: 24, Arch: 86, SMs: 84,
		SMsSource: "torch.cuda.get_device_properties",
		Total: mib(24110, 24110, 24214,
			"Ultralytics on torch 2.9.1+cu128 (2025 to 2026): 24110MiB; get_device_properties of torch 2.5 or later (2025 to 2026): 24114MB;"+
				"torch 2.2.2 (2025): 24142MiB; torch 2.1.1 (2023): 24214MiB"),
	},
}
