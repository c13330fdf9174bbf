package device

// geForce lists NVIDIA's consumer GPUs. SM counts are the
// multi_processor_count that torch.cuda.get_device_properties prints (seen 2021
// to 2026), except where a comment says otherwise. Totals are of Linux; see
// the package's text for Windows.
var geForce = []GPU{
	{
		Name: "rtx-3060", Display: "NVIDIA GeForce RTX 3060 12GB",
		Aliases:     []string{"3060", "rtx-3060-12gb", "3060-12gb"},
		MarketedGiB: 12, Arch: 86, SMs: 28,
		Total: mib(11908, 11900, 12044,
			"nvidia-smi with CUDA (2026-08): 12288 MiB less 380 reserved is the 11.63 GiB of OOM messages; "+
				"get_device_properties: 11931MB (torch 2.4.1+cu124, 2024), 11900MB (later); "+
				"older drivers: 12622168064 B (xMem, torch 2.6.0+cu124, 2025), 12044MB"),
		Context: mib(120, 105, 160,
			"OOM messages naming the RTX 3060, 11.75 GiB, diffusers (2024 to 2025): 106 and 123 MiB; high end of rtx-4060, a smaller chip"),
	},
	{
		Name: "rtx-3090", Display: "NVIDIA GeForce RTX 3090",
		Aliases:     []string{"3090", "rtx-3090-24gb"},
		MarketedGiB: 24, Arch: 86, SMs: 82,
		Total: mib(24128, 24125, 24259,
			"OOM messages naming the RTX 3090 (2025 to 2026): 23.56 GiB, vllm-project/vllm#26863 (2025-10): 23.57 GiB; "+
				"Unsloth on torch 2.7.1+cu126 (2025-08): 23.684 GiB; get_device_properties of an older driver: 24259MB"),
		Context: mib(320, 255, 350,
			"OOM messages: vllm-project/vllm#26863 (2025-10): 344 MiB; long-context inference log (2026): 347; training logs (2025): 307, 325; "+
				"bare context, invoke-ai/InvokeAI#9413 (2026-07), torch 2.7.1+cu128, driver 610: 256"),
	},
	{
		Name: "rtx-4060", Display: "NVIDIA GeForce RTX 4060 8GB",
		Aliases:     []string{"4060", "rtx-4060-8gb", "GeForce RTX 4060 Laptop GPU", "rtx-4060-laptop", "4060-laptop"},
		MarketedGiB: 8, Arch: 89, SMs: 24, // 3072 CUDA cores / 128, NVIDIA's Ada specifications (2023)
		Total: mib(7803, 7803, 7936,
			"vLLM log naming the RTX 4060 (2026): 7.62 GiB; xMem, torch 2.6.0+cu124 (2025): 8318222336 B; "+
				"ESRSchao/EdgeRegNet#2 (2025-04), laptop: 7.75 GiB"),
		Context: mib(115, 90, 160,
			"OOM message, ESRSchao/EdgeRegNet#2 (2025-04), laptop: 115 MiB; 8 GB cards on 7.63 GiB that name no model (2024 to 2026): 92, 113, 161"),
	},
	{
		Name: "rtx-4090", Display: "NVIDIA GeForce RTX 4090",
		Aliases:     []string{"4090", "rtx-4090-24gb"},
		MarketedGiB: 24, Arch: 89, SMs: 128,
		Total: mib(24084, 24074, 24248,
			"pytorch/torchchat#1341 (2024-11), driver 560.35.03: 23.52 GiB, the same with driver 595.84 (2026); "+
				"Unsloth on torch 2.10.0+cu130 (2026-02): 23.51 GiB; deepseek-ai/DeepSeek-V3#205 (2025-01): 23.64 GiB; "+
				"Unsloth on torch 2.8.0+cu128 (2025-10): 23.647 GiB; zai-org/CogVideo#36 (2023-05): 23.68 GiB"),
		Context: mib(475, 380, 565,
			"OOM messages: pytorch/torchchat#1341 (2024-11): 495 MiB; pinokiofactory/flux-webui#11 (2024-08): 473; "+
				"3DTopia/Phidias-Diffusion#8 (2025-08): 504; logs on 23.64 GiB (2025): 379 (text generation) to 461; "+
				"Whisper training on 23.51 GiB (2026): 565"),
	},
}
