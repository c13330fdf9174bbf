package device

// geForceTuring lists NVIDIA's consumer GPUs of Pascal and Turing.
// Drivers since about 2025 leave some 200 MiB less than
// those before, which the ranges show.
var geForceTuring = []GPU{
	{
		Name: "gtx-1060-6gb", Display: "NVIDIA GeForce GTX 1060 6GB",
		Aliases:     []string{"gtx-1060"},
		MarketedGiB: 6, Arch: 61, SMs: 10,
		SMsSource: "guru3d.com on Pascal, as copied (2023)",
		Total: mib(6063, 6063, 6078,
			"Ultralytics on torch 2.6.0+cu124 (2024 to 2025): 6063MiB; high end assumed from older drivers"),
	},
	{
		Name: "gtx-1070", Display: "NVIDIA GeForce GTX 1070",
		MarketedGiB: 8, Arch: 61, SMs: 15,
		SMsSource: "guru3d.com on Pascal, as copied (2023)",
		Total: likely(8106, 8096, 8120,
			"gtx-1080, the same memory; Ultralytics on a GTX 1070 Max-Q (2026): 8114MiB"),
	},
	{
		Name: "gtx-1070-ti", Display: "NVIDIA GeForce GTX 1070 Ti",
		MarketedGiB: 8, Arch: 61, SMs: 19,
		SMsSource: "sashleycat.com: one of 20 is off",
		Total: likely(8106, 8096, 8120,
			"gtx-1080, the same memory"),
	},
	{
		Name: "gtx-1080", Display: "NVIDIA GeForce GTX 1080",
		MarketedGiB: 8, Arch: 61, SMs: 20,
		SMsSource: "guru3d.com on Pascal (2017)",
		Total: mib(8106, 8106, 8120,
			"CUDA runtime 11.6, driver 515 (2022): 8106 and 8120 MB for the second and first GPU"),
	},
	{
		Name: "gtx-1080-ti", Display: "NVIDIA GeForce GTX 1080 Ti",
		MarketedGiB: 11, Arch: 61, SMs: 28,
		SMsSource: "guru3d.com on Pascal, as copied (2023)",
		Total: mib(11172, 11172, 11178,
			"Ultralytics on torch 2.5.1+cu124 (2024 to 2025): 11172MiB; YOLOv5, torch 1.12.1 (2023): 11177MiB"),
	},
	{
		Name: "gtx-1650", Display: "NVIDIA GeForce GTX 1650",
		Aliases:     []string{"gtx-1650-4gb"},
		MarketedGiB: 4, Arch: 75, SMs: 14,
		SMsSource: "hardwareluxx.de (2019): 896 CUDA cores, 64 in each SM",
		Total: mib(3716, 3712, 3904,
			"llama.cpp (2026): 3712 and 3716 MiB;"+
				"YOLOv5, torch 1.13.0 (2023): 3904MiB"),
	},
	{
		Name: "gtx-1650-ti", Display: "NVIDIA GeForce GTX 1650 Ti",
		MarketedGiB: 4, Arch: 75, SMs: 16,
		Total: mib(3897, 3712, 3904,
			"Ultralytics on torch 2.4.0 (2024): 3897MiB; low end of gtx-1650, the same memory"),
	},
	{
		Name: "gtx-1660", Display: "NVIDIA GeForce GTX 1660",
		MarketedGiB: 6, Arch: 75, SMs: 22,
		SMsSource: "techpowerup.com, review (2019)",
		Total: likely(5745, 5740, 5928,
			"gtx-1660-super, the same memory; Ultralytics on torch 2.2.2 (2024): 5928MiB"),
	},
	{
		Name: "gtx-1660-super", Display: "NVIDIA GeForce GTX 1660 SUPER",
		MarketedGiB: 6, Arch: 75, SMs: 22,
		SMsSource: "guru3d.com, review (2019)",
		Total: mib(5745, 5740, 5928,
			"measured (2026-09): 5745 MiB, 5.61 GiB in PyTorch; YOLOv5, torch 2.0.1 (2023): 5928MiB"),
	},
	{
		Name: "gtx-1660-ti", Display: "NVIDIA GeForce GTX 1660 Ti",
		MarketedGiB: 6, Arch: 75, SMs: 24,
		SMsSource: "techpowerup.com, review (2019): 1536 CUDA cores, 64 in each SM",
		Total: mib(5747, 5747, 5945,
			"llama.cpp (2026): 5747 MiB; YOLOv3, torch 1.8.1 (2023): 5914MiB; Max-Q, torch 1.13.0 (2022): 5945MiB"),
	},
	{
		Name: "rtx-2060-6gb", Display: "NVIDIA GeForce RTX 2060 6GB", Family: "rtx-2060",
		MarketedGiB: 6, Arch: 75, SMs: 30,
		SMsSource: "hardwareluxx.de (2019): 1920 CUDA cores, 64 in each SM",
		Total: mib(5745, 5740, 5934,
			"OOM message naming the RTX 2060 6GB (2025): 5.61 GiB; YOLOv5, torch 2.2.2 (2024): 5918MiB"),
	},
	{
		Name: "rtx-2060-12gb", Display: "NVIDIA GeForce RTX 2060 12GB", Family: "rtx-2060",
		MarketedGiB: 12, Arch: 75, SMs: 34,
		Total: mib(11833, 11833, 12030,
			"llama.cpp (2026): 11833 MiB; high end assumed from older drivers of rtx-2060-6gb"),
	},
	{
		Name: "rtx-2060-super", Display: "NVIDIA GeForce RTX 2060 SUPER",
		MarketedGiB: 8, Arch: 75, SMs: 34,
		SMsSource: "guru3d.com, review (2019)",
		Total: likely(7782, 7772, 7982,
			"rtx-2070, the same memory; llama.cpp (2026) saw 7681 MiB of it free"),
	},
	{
		Name: "rtx-2070", Display: "NVIDIA GeForce RTX 2070",
		MarketedGiB: 8, Arch: 75, SMs: 36,
		SMsSource: "hardwareluxx.de (2019): 2304 CUDA cores, 64 in each SM",
		Total: mib(7782, 7777, 7982,
			"torch 2.5.1+cu124, driver 580 (2026): 7782 MiB; high end of rtx-2070-super, the same memory"),
	},
	{
		Name: "rtx-2070-super", Display: "NVIDIA GeForce RTX 2070 SUPER",
		MarketedGiB: 8, Arch: 75, SMs: 40,
		SMsSource: "guru3d.com, review (2019)",
		Total: likely(7782, 7772, 7982,
			"rtx-2070, the same memory, with drivers since 2025; Ultralytics on torch 1.13 and 2.1 (2023): 7982 and 7972MiB"),
	},
	{
		Name: "rtx-2080", Display: "NVIDIA GeForce RTX 2080",
		MarketedGiB: 8, Arch: 75, SMs: 46,
		SMsSource: "hashcat",
		Total: mib(7783, 7777, 7982,
			"hashcat (2024 to 2026): 7783 MB; high end of rtx-2080-super, the same memory"),
	},
	{
		Name: "rtx-2080-super", Display: "NVIDIA GeForce RTX 2080 SUPER",
		MarketedGiB: 8, Arch: 75, SMs: 48,
		SMsSource: "komputerswiat.pl, review (2019)",
		Total: likely(7783, 7772, 7982,
			"rtx-2080, the same memory, with drivers since 2025; YOLOv5, torch 1.13.1 (2023): 7982MiB"),
	},
	{
		Name: "rtx-2080-ti", Display: "NVIDIA GeForce RTX 2080 Ti",
		Aliases:     []string{"rtx-2080-ti-11gb"},
		MarketedGiB: 11, Arch: 75, SMs: 68,
		SMsSource: "torch.cuda.get_device_properties",
		Total: mib(10825, 10819, 11020,
			"Ultralytics on torch 2.6.0+cu124 (2025): 10825MiB, the 10.57 GiB of OOM messages (2025 to 2026);"+
				"others, torch 2.1 to 2.2 (2024 to 2026): 11009 and 11012MiB; torch 1.8 to 1.11 (2021 to 2022): 11019 and 11020MiB"),
		Context: mib(190, 150, 240,
			"OOM messages: language model training on 10.57 GiB (2026): 191 MiB; training on 10.75 GiB (2024): 186; range assumed, ±25 %"),
	},
}
