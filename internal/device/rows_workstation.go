package device

// workstation lists NVIDIA's professional GPUs (Quadro, RTX A, RTX Ada, RTX PRO).
// They are sold with ECC switched off, or users
// switch it off; with ECC a sixteenth of the memory is missing, which the low
// ends of some ranges show.
var workstation = []GPU{
	{
		Name: "quadro-rtx-5000", Display: "NVIDIA Quadro RTX 5000",
		MarketedGiB: 16, Arch: 75, SMs: 48,
		Total: mib(15927, 15920, 16125,
			"llama.cpp (2026): 15927 MiB; high end assumed from older drivers of quadro-rtx-8000"),
	},
	{
		Name: "quadro-rtx-6000", Display: "NVIDIA Quadro RTX 6000",
		MarketedGiB: 24, Arch: 75, SMs: 72,
		SMsSource: "hardwareluxx.de (2019): 4608 CUDA cores, 64 in each SM",
		Total: likely(24000, 22400, 24220,
			"titan-class cards of this chip had 24212 MiB with drivers of 2023, since when quadro-rtx-8000 lost 213; nvidia-smi with ECC (2026): 23040 MiB"),
	},
	{
		Name: "quadro-rtx-8000", Display: "NVIDIA Quadro RTX 8000",
		MarketedGiB: 48, Arch: 75, SMs: 72,
		SMsSource: "torch.cuda.get_device_properties",
		Total: mib(48380, 48380, 48601,
			"Ultralytics (2026): 48380MiB; torch 2.1.1+cu121 (2023): 48593MiB; get_device_properties (2022): 48601MB"),
	},
	{
		Name: "titan-rtx", Display: "NVIDIA TITAN RTX",
		MarketedGiB: 24, Arch: 75, SMs: 72,
		SMsSource: "hardwareluxx.de (2019): all of the chip, which has 72 (anandtech.com)",
		Total: mib(24212, 24000, 24220,
			"YOLOv5, torch 1.13.1+cu117 (2022 to 2023): 24212MiB; low end of quadro-rtx-6000, the same chip"),
	},
	{
		Name: "rtx-a2000-6gb", Display: "NVIDIA RTX A2000 6GB", Family: "rtx-a2000",
		MarketedGiB: 6, Arch: 86, SMs: 26,
		SMsSource: "sysrqmts.com",
		Total: likely(5806, 5380, 5946,
			"rtx-3060-laptop, the same memory; nvidia-smi with ECC (2026): 5754 MiB"),
	},
	{
		Name: "rtx-a2000-12gb", Display: "NVIDIA RTX A2000 12GB", Family: "rtx-a2000",
		MarketedGiB: 12, Arch: 86, SMs: 26,
		SMsSource: "cputronic.com: 26 RT cores, one in each SM",
		Total: mib(12017, 11900, 12017,
			"Ultralytics on torch 2.1.0+cu118 (2023): 12017MiB; low end assumed from newer drivers of rtx-3060"),
	},
	{
		Name: "rtx-a4000", Display: "NVIDIA RTX A4000",
		MarketedGiB: 16, Arch: 86, SMs: 48,
		Total: mib(15967, 15960, 16117,
			"Unsloth on torch 2.5.1+cu121 (2025-11): 15.593 GiB; DengKaiCQ/VGGT-Long#6 (2025-07): 15.61 GiB; Ultralytics on torch 1.12.1 (2023): 16117MiB"),
		Context: mib(210, 160, 260,
			"OOM message, DengKaiCQ/VGGT-Long#6 (2025-07): 210 MiB; range assumed, ±25 %"),
	},
	{
		Name: "rtx-a4500", Display: "NVIDIA RTX A4500",
		MarketedGiB: 20, Arch: 86, SMs: 56,
		SMsSource: "cputronic.com: 56 RT cores, one in each SM",
		Total: likely(20045, 20010, 20150,
			"OOM messages of 20 GB GPUs that name no model (2025 to 2026): 19.57 and 19.58 GiB"),
	},
	{
		Name: "rtx-a5000", Display: "NVIDIA RTX A5000",
		MarketedGiB: 24, Arch: 86, SMs: 64,
		SMsSource: "torch.cuda.get_device_properties",
		Total: mib(24138, 22721, 24248,
			"get_device_properties on RunPod, torch 2.5 or later (2025): 24138MB; Ultralytics on torch 2.1.0 (2024 to 2026): 24248MiB; with ECC, torch 2.2.0 (2024): 22721MiB"),
	},
	{
		Name: "rtx-a5500", Display: "NVIDIA RTX A5500",
		MarketedGiB: 24, Arch: 86, SMs: 80,
		SMsSource: "askgeek.io: 10240 CUDA cores, 128 in each SM",
		Total: mib(24090, 24090, 24248,
			"Ultralytics on torch 2.7.1+cu126 (2025): 24090MiB; high end of rtx-a5000, the same memory"),
	},
	{
		Name: "rtx-a6000", Display: "NVIDIA RTX A6000",
		Aliases:     []string{"rtx-a6000-48gb"},
		MarketedGiB: 48, Arch: 86, SMs: 84,
		SMsSource: "torch.cuda.get_device_properties",
		Total: mib(48569, 45493, 48676,
			"Unsloth on torch 2.8.0+cu128 (2025-09): 47.431 GiB, the 47.43 GiB of OOM messages; get_device_properties (2024): 48676MB;"+
				"with ECC, Unsloth on torch 2.11.0+cu128 (2026-07): 44.427 GiB"),
		Context: mib(325, 255, 360,
			"OOM message on 47.43 GiB, video diffusion (2025): 328 MiB; range of rtx-3090, the same chip with two SMs less"),
	},
	{
		Name: "rtx-4000-ada", Display: "NVIDIA RTX 4000 Ada",
		MarketedGiB: 20, Arch: 89, SMs: 48,
		SMsSource: "hmc-tech.com: 6144 CUDA cores, 128 in each SM",
		Total: likely(20045, 20010, 20150,
			"rtx-a4500, the same memory; nvidia-smi shows 20475 MiB (2026)"),
	},
	{
		Name: "rtx-4500-ada", Display: "NVIDIA RTX 4500 Ada",
		MarketedGiB: 24, Arch: 89, SMs: 60,
		SMsSource: "technical.city: 60 RT cores, one in each SM",
		Total: likely(24084, 22500, 24248,
			"rtx-4090, the same memory"),
	},
	{
		Name: "rtx-5000-ada", Display: "NVIDIA RTX 5000 Ada",
		MarketedGiB: 32, Arch: 89, SMs: 100,
		SMsSource: "hmc-tech.com: 12800 CUDA cores, 128 in each SM",
		Total: likely(32240, 30300, 32400,
			"nvidia-smi shows 32760 MiB (2026), of which CUDA gives about 520 less, between rtx-4090 (480) and rtx-6000-ada (643)"),
	},
	{
		Name: "rtx-6000-ada", Display: "NVIDIA RTX 6000 Ada",
		MarketedGiB: 48, Arch: 89, SMs: 142,
		SMsSource: "torch.cuda.get_device_properties",
		Total: mib(48497, 45466, 48622,
			"Ultralytics on torch 2.7.0+cu128 (2025-06): 48497MiB; torch 2.4.1+cu124 (2025): 48539MiB; get_device_properties (2024): 48622MB;"+
				"with ECC, DINGYANB/MTVCrafter#21 (2025-07): 44.40 GiB"),
		Context: mib(470, 390, 530,
			"OOM messages: DINGYANB/MTVCrafter#21 (2025-07): 429 MiB; l40s, the same chip (2025 to 2026): 495 and 514"),
	},
	{
		Name: "rtx-pro-6000", Display: "NVIDIA RTX PRO 6000 Blackwell",
		Aliases:     []string{"RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000 Blackwell Workstation Edition", "RTX PRO 6000 Blackwell"},
		MarketedGiB: 96, Arch: 120, SMs: 188,
		SMsSource: "torch.cuda.get_device_properties",
		Total: mib(97250, 97239, 97260,
			"get_device_properties, Server Edition, torch 2.7.1+cu128 (2025): 97250MB; OOM messages (2025 to 2026): 94.96 to 94.98 GiB"),
		Context: mib(550, 480, 800,
			"OOM message on 94.96 GiB, image editing (2026): 549 MiB; high end assumed from rtx-5090 in proportion to its SMs"),
	},
}
