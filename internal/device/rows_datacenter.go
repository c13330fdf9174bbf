package device

import "github.com/memplan/memplan/internal/tensor"

// dataCenter lists NVIDIA's data-center GPUs from Pascal to Ada.
var dataCenter = []GPU{
	{
		Name: "p100-16gb", Display: "NVIDIA P100 16GB",
		Aliases:     []string{"p100", "P100-PCIE-16GB", "P100-SXM2-16GB"},
		MarketedGiB: 16, Arch: 60, SMs: 56,
		SMsSource: "torch.cuda.get_device_properties (2021 to 2026)",
		Total: mib(16269, 16269, 16281,
			"Ultralytics on Kaggle, torch 2.11.0+cu128 (2026): 16269MiB; torch 1.10 to 2.0 (2021 to 2023): 16281MiB; "+
				"get_device_properties, torch 1.8 (2021): 16280MB"),
	},
	{
		Name: "v100-16gb", Display: "NVIDIA V100 16GB", Family: "v100",
		Aliases:     []string{"V100-SXM2-16GB", "V100-PCIE-16GB"},
		MarketedGiB: 16, Arch: 70, SMs: 80,
		SMsSource: "torch.cuda.get_device_properties (2021 to 2026)",
		Total: mib(16148, 16148, 16160,
			"OOM messages (2024 to 2026), V100 by its size: 15.77 GiB; "+
				"get_device_properties, torch 1.8.1+cu101 (2021): 16160MB"),
		Context: mib(385, 370, 400,
			"OOM message, 15.77 GiB card, PyTorch 2.6 (2026): 383 MiB; as v100-32gb, the same chip"),
	},
	{
		Name: "v100-32gb", Display: "NVIDIA V100 32GB", Family: "v100",
		Aliases:     []string{"V100-SXM2-32GB", "V100-SXM3-32GB", "V100-PCIE-32GB", "V100S-PCIE-32GB", "V100S"},
		MarketedGiB: 32, Arch: 70, SMs: 80,
		SMsSource: "torch.cuda.get_device_properties (2021 to 2026)",
		Total: mib(32491, 32491, 32512,
			"OOM messages naming V100-32GB (2026): 31.73 GiB; hiyouga/LlamaFactory#182 (2023-07), V100 by its size: 31.75 GiB"),
		Context: mib(385, 370, 400,
			"OOM messages on 31.73 GiB, PyTorch 2.2 to 2.5 (training, 2024): 379, 389 and 399 MiB"),
	},
	{
		Name: "t4", Display: "NVIDIA T4",
		Aliases:     []string{"t4-16gb"},
		MarketedGiB: 16, Arch: 75, SMs: 40,
		SMsSource: "torch.cuda.get_device_properties (2021 to 2026)",
		Total: mib(14912, 14912, 15109,
			"Unsloth on AWS g4dn.4xlarge, torch 2.6.0+cu124 (2025), to torch 2.11.0+cu128 (2026-07): 14.563 GiB; "+
				"bottlerocket-os/bottlerocket#3798 (2024), driver 535: 15655829504 B; "+
				"OOM messages on Colab (2024 to 2025): 14.74 GiB; get_device_properties on Colab (about 2022): 15109MB"),
		Context: mib(135, 115, 165,
			"OOM messages: FoundationVision/GenerateU#10 (2024-05): 141 MiB; AlphaGPU/leetgpu-challenges#52 (2025-08): 123; "+
				"Zheng-Chong/CatVTON#133 (2025-11): 135; Colab and Kaggle logs (2024 to 2026): 114 to 164"),
	},
	{
		Name: "a100-40gb", Display: "NVIDIA A100 40GB", Family: "a100",
		Aliases:     []string{"A100-SXM4-40GB", "A100-SXM-40GB", "A100-PCIE-40GB"},
		MarketedGiB: 40, Arch: 80, SMs: 108,
		SMsSource: "torch.cuda.get_device_properties (2021 to 2026)",
		Total: Figure{
			Value: 42405855232, Low: 42298834944, High: 40536 * tensor.MiB,
			Source: "PyTorch's allocator warning \"total: 42405855232\" (2026-08); Unsloth on torch 2.9.1+cu128 (2026-06): 39.494 GiB; " +
				"bottlerocket-os/bottlerocket#3873 (2024-04), driver 535: 42298834944 B; " +
				"Unsloth on Colab, torch 2.6.0+cu124 (2025-08): 39.557 GiB; get_device_properties in PaddlePaddle's docs (about 2021): 40536MB",
		},
		// GPUMemNet saw 1443 MiB of nvidia-smi memory.used as the floor of 300
		// training jobs. That is device-wide, of an unknown PyTorch, and holds
		// allocator segments, so it is not a context.
		Context: mib(500, 415, 535,
			"OOM messages: TianheWu/CoSeR#10 (2025-01): 501 MiB; logs on 39.49 GiB (2025 to 2026): 422 (weights loaded), 504; "+
				"Colab, torch 2.6.0+cu124 (2025-08): 531; an idle second process on 39.49 GiB (2026-08): 418"),
	},
	{
		Name: "a100-80gb", Display: "NVIDIA A100 80GB", Family: "a100",
		Aliases:     []string{"A100-SXM4-80GB", "A100-SXM-80GB", "A100 80GB PCIe", "A100-PCIE-80GB"},
		MarketedGiB: 80, Arch: 80, SMs: 108,
		SMsSource: "torch.cuda.get_device_properties (2021 to 2026)",
		Total: mib(81152, 81037, 81152,
			"HiDream-ai/VAREdit#6 (2025-12): total capacity of 79.25 GiB; ekondis/mixbench#47 (2023-11), PCIe, driver 535: 81049 MB; "+
				"lianqi1008/Control-GIC#6 (2025-10): 79.14 GiB"),
		Context: mib(500, 410, 525,
			"OOM messages on 79.25 GiB: HiDream-ai/VAREdit#6 (2025-12): 409 MiB; training and embedding logs (2025 to 2026): 511, 522"),
	},
	{
		Name: "a30", Display: "NVIDIA A30",
		Aliases:     []string{"a30-24gb"},
		MarketedGiB: 24, Arch: 80, SMs: 56,
		SMsSource: "sysrqmts.com: A30 PCIe",
		Total: mib(24164, 24090, 24164,
			"YOLO on torch 2.8.0+cu128 (2025): 24164MiB; google/RB-Modulation#5 (2024-09): 23.53 GiB"),
	},
	{
		Name: "a10", Display: "NVIDIA A10",
		Aliases:     []string{"a10-24gb"},
		MarketedGiB: 24, Arch: 86, SMs: 72,
		SMsSource: "sysrqmts.com: A10 PCIe",
		Total: mib(22587, 22582, 24274,
			"Modal, torch 2.14.0+cu130, driver 580 (2026): 22.06 GiB of nvidia-smi's 23028 MiB; "+
				"tatsu-lab/stanford_alpaca#76 (2023-03), ECC off: 23.70 GiB"),
	},
	{
		Name: "a16", Display: "NVIDIA A16 (one of its four GPUs)",
		Aliases:     []string{"a16-16gb"},
		MarketedGiB: 16, Arch: 86, SMs: 10,
		SMsSource: "hmc-tech.com: 4 x 1280 CUDA cores, 128 in each SM",
		Total: likely(14973, 14900, 15000,
			"nvidia-smi used and free on 15356 MiB, vLLM (2026): 14728 + 245 MiB; the A10's 23028 MiB also lose 441 to CUDA"),
	},
	{
		Name: "a40", Display: "NVIDIA A40",
		Aliases:     []string{"a40-48gb"},
		MarketedGiB: 48, Arch: 86, SMs: 84,
		SMsSource: "torch.cuda.get_device_properties (2021 to 2026)",
		Total: mib(45486, 45416, 48688,
			"OOM messages naming the A40 (2025-11 and 2026-10): 44.42 GiB; Unsloth on torch 2.9.1 (2025-12): 44.549 GiB; "+
				"get_device_properties (2023): 45416MB; YOLOv5, torch 1.8.1, ECC off (2023): 48688MiB"),
	},
	{
		Name: "a10g", Display: "NVIDIA A10G",
		Aliases:     []string{"a10g-24gb"},
		MarketedGiB: 24, Arch: 86, SMs: 80,
		SMsSource: "torch.cuda.get_device_properties (2021 to 2026)",
		Total: mib(22587, 22587, 22723,
			"get_device_properties, torch 2.15.0.dev20260909+cu130 (2026-09): 22587MB; "+
				"meta-pytorch/torchtune#229 (2024-01): 22.19 GiB, the 22723MB of an older get_device_properties"),
		Context: mib(280, 255, 350,
			"OOM message, meta-pytorch/torchtune#229 (2024-01): 282 MiB; range of rtx-3090, the same chip with two more SMs"),
	},
	{
		Name: "l4", Display: "NVIDIA L4",
		Aliases:     []string{"l4-24gb"},
		MarketedGiB: 24, Arch: 89, SMs: 58,
		SMsSource: "NVIDIA L4 data sheet (2023): 7424 CUDA cores, 128 in each SM",
		Total: mib(22561, 22559, 22693,
			"vLLM log on an empty card (2026): 22561.0 MiB free of 22.03 GiB; torch 2.14.0+cu130 (2026): 22.03 GiB; "+
				"AWS (2026): 22.04 GiB; Unsloth on torch 2.8.0+cu126 (2025-08): 22.161 GiB"),
		Context: mib(250, 180, 265,
			"OOM messages: vLLM CI (2025-06): 255 MiB; Modal and Kaggle logs on 22.03 GiB (2026): 251, 251; "+
				"logs on 22.05 GiB (2025): 181 (weights loading), 215"),
	},
	{
		Name: "l40", Display: "NVIDIA L40",
		Aliases:     []string{"l40-48gb"},
		MarketedGiB: 48, Arch: 89, SMs: 142,
		SMsSource: "torch.cuda.get_device_properties (2021 to 2026)",
		Total: mib(45466, 45440, 45589,
			"report of a training run (2026-03): 44.4 GB of nvidia-smi's 46068 MiB, as the l40s; range of l40s, the same chip"),
		Context: mib(505, 430, 530,
			"OOM message, NVlabs/Eagle#68 (2026-06): 507 MiB; range of l40s, the same chip"),
	},
	{
		Name: "l40s", Display: "NVIDIA L40S",
		Aliases:     []string{"l40s-48gb"},
		MarketedGiB: 48, Arch: 89, SMs: 142,
		SMsSource: "torch.cuda.get_device_properties (2021 to 2026)",
		Total: mib(45466, 45457, 45589,
			"OOM messages naming the L40S (2025-08 to 2026): 44.40 GiB; Unsloth on torch 2.10.0+cu128 (2026-02): 44.402 GiB, later 44.392; "+
				"get_device_properties (2024): 45589MB"),
		Context: mib(505, 430, 530,
			"OOM messages: vLLM 0.10.1 (2025-08), weights loaded: 495 MiB; ONNX export on 44.40 GiB (2026): 514; "+
				"low end of rtx-6000-ada, the same chip"),
	},
}
