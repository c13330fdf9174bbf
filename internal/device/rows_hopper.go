package device

import "github.com/memplan/memplan/internal/tensor"

// hopper lists NVIDIA's data-center GPUs from Hopper on.
var hopper = []GPU{
	{
		Name: "h100-80gb", Display: "NVIDIA H100 80GB SXM",
		Aliases:     []string{"h100", "H100 80GB HBM3", "h100-sxm", "h100-sxm5", "H100-SXM5-80GB", "h100-sxm-80gb"},
		MarketedGiB: 80, Arch: 90, SMs: 132,
		SMsSource: "torch.cuda.get_device_properties or the driver (2023 to 2026)",
		Total: mib(81079, 81008, 81090,
			"79.179 GiB with torch 2.11.0+cu130 (2026-08); get_device_properties 81082MB (torch 2.0.1+cu118, 2023) and 81090MB; "+
				"vllm-project/vllm#27508 (2025-10): 79.11 GiB"),
		Context: mib(600, 525, 750,
			"OOM messages on 79.19 GiB: diffusers benchmark, H100, CUDA 12.8 (2026): 599 MiB; H100 PCIe, training (2026): 601; "+
				"LoRA merge, size only (2025): 749; low end of h200, the same chip"),
	},
	{
		Name: "h100-pcie", Display: "NVIDIA H100 80GB PCIe",
		Aliases:     []string{"h100-pcie-80gb", "H100 80GB PCIe"},
		MarketedGiB: 80, Arch: 90, SMs: 114,
		SMsSource: "torch.cuda.get_device_properties or the driver (2023 to 2026)",
		Total: mib(81079, 81008, 81090,
			"OOM message naming the H100 PCIe (2026): 79.19 GiB, as the h100-80gb; get_device_properties (2023): 81008MB"),
		Context: mib(600, 450, 700,
			"OOM message, training (2026): 601 MiB; range of h100-80gb in proportion to its SMs"),
	},
	{
		Name: "h100-nvl", Display: "NVIDIA H100 NVL 94GB",
		Aliases:     []string{"h100-94gb", "h100-nvl-94gb"},
		MarketedGiB: 94, Arch: 90, SMs: 132,
		Total: mib(95320, 95248, 95339,
			"Ultralytics on torch 2.13.0+cu130 (2026): 95320MiB; OOM messages (2025 to 2026): 93.09 and 93.10 GiB; "+
				"Unsloth on torch 2.6.0+cu124 (2025): 93.016 GiB"),
		Context: mib(600, 525, 775,
			"OOM messages on 93.10 GiB: fine-tuning (2025): 601 MiB; U-Net and classifier training (2026): 768 and 768; "+
				"low end of h200, the same chip"),
	},
	{
		Name: "h200", Display: "NVIDIA H200",
		Aliases:     []string{"h200-141gb", "h200-sxm", "H200-SXM5-141GB"},
		MarketedGiB: 141, Arch: 90, SMs: 132,
		SMsSource: "torch.cuda.get_device_properties or the driver (2023 to 2026)",
		Total: mib(143156, 143073, 143165,
			"get_device_properties on Modal (2025 to 2026): 143156MB, the 139.80 GiB of most OOM messages (2025 to 2026); "+
				"others (2025 to 2026): 139.72 and 139.81 GiB"),
		Context: mib(600, 525, 670,
			"OOM messages on 139.81 GiB (2025): 525 MiB (weights loaded); on 139.72 GiB (2026): 670; "+
				"value of h100-80gb, the same chip"),
	},
	{
		Name: "h20", Display: "NVIDIA H20 96GB",
		Aliases:     []string{"h20-96gb", "H20-SXM5-96GB"},
		MarketedGiB: 96, Arch: 90, SMs: 78,
		SMsSource: "torch.cuda.get_device_properties or the driver (2023 to 2026)",
		Total: mib(97285, 97280, 97290,
			"get_device_properties, quoted in inclusionAI/flood (2025-03): 97285MB; OOM messages of GPUs of this size (2025 to 2026): 95.00 and 95.01 GiB"),
	},
	{
		Name: "gh200-96gb", Display: "NVIDIA GH200 96GB", Family: "gh200",
		Aliases:     []string{"GH200 480GB", "GH200 120GB"}, // named for the CPU's memory
		MarketedGiB: 96, Arch: 90, SMs: 132,
		SMsSource: "torch.cuda.get_device_properties or the driver (2023 to 2026)",
		Total: mib(96768, 96763, 97280,
			"OOM message of a 96 GB Hopper, vLLM (2024-10): 94.50 GiB, and the size of the GPU's NUMA node (2026): 94.5 GiB; "+
				"nvidia-smi, driver 580 (2026): 97280 of 97871 MiB free"),
	},
	{
		Name: "gh200-144gb", Display: "NVIDIA GH200 144GB", Family: "gh200",
		Aliases:     []string{"GH200 144G HBM3e"},
		MarketedGiB: 144, Arch: 90, SMs: 132,
		SMsSource: "torch.cuda.get_device_properties or the driver (2023 to 2026)",
		Total: Figure{
			Value: 153008209920, Low: 153008209920, High: 146831 * tensor.MiB,
			Source: "properties copied from a GH200 144G HBM3e for torch 2.11.0+cu130 (2026): total_memory 153008209920; " +
				"nvidia-smi, driver 580.173.02 (2026): 146831 MiB",
		},
	},
	{
		Name: "b200", Display: "NVIDIA B200",
		Aliases:     []string{"b200-180gb", "b200-192gb"},
		MarketedGiB: 180, Arch: 100, SMs: 148,
		SMsSource: "torch.cuda.get_device_properties or the driver (2023 to 2026)",
		Total: mib(182631, 182625, 182642,
			"get_device_properties on torch 2.8 and later (2025 to 2026): 182631MB, the 178.35 GiB of OOM messages (2025 to 2026); "+
				"others (2025): 182642MB"),
		Context: mib(710, 560, 900,
			"OOM message of a single-process script on 178.35 GiB (2026): 712 MiB; range assumed, ±25 %"),
	},
	{
		Name: "gb200", Display: "NVIDIA GB200 (one GPU)",
		Aliases:     []string{"gb200-186gb"},
		MarketedGiB: 186, Arch: 100, SMs: 152,
		SMsSource: "torch.cuda.get_device_properties or the driver (2023 to 2026)",
		Total: mib(188733, 188728, 189471,
			"OOM messages naming the GB200 (2026): 184.31 GiB of nvidia-smi's 189471 MiB"),
	},
}
