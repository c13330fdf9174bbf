package runtime

import (
	"context"
	"math"
	"testing"

	"github.com/memplan/memplan/internal/cpu"
	"github.com/memplan/memplan/internal/estimate"
	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/tensor"
	"github.com/memplan/memplan/specs"
)

// smallPresets are settings that make presets small enough to be trained in a test.
var smallPresets = map[string][]string{
	"autoencoder": {"params.img=16", "params.width=4", "params.code=8"},
	"bert":        {"params.vocab=50", "params.d=12", "params.heads=2", "params.layers=2", "params.ff=20", "params.maxlen=16", "params.seq=6"},
	"dcgan":       {"params.ngf=8", "params.ndf=8", "params.nz=8"},
	"diffusion":   {"params.img=16", "params.base=32", "params.blocks=1", "params.attention=[8]", "params.groups=8"},
	"dlrm":        {"params.tables=[100,50]", "params.d=8", "params.bottom=[16]", "params.top=[16]"},
	"gpt":         {"params.vocab=61", "params.d=16", "params.heads=2", "params.layers=2", "params.seq=7", "params.ctx=9"},
	"litgpt": {
		"params.padded_vocab_size=61", "params.n_embd=16", "params.n_head=4", "params.n_query_groups=2", "params.n_layer=2", "params.intermediate_size=24", "params.block_size=9",
		"params.seq=7", "params.lora_r=2", "params.lora_query=true", "params.lora_value=true", "train.precision=fp32",
	},
	"megatron": { // jit leaves out what kernels of torch.compile compute
		"params.num_layers=1", "params.hidden_size=16", "params.num_attention_heads=2", "params.seq_length=8", "params.max_position_embeddings=8", "params.padded_vocab_size=61",
		"params.jit=false", "params.dtype=float32", "train.precision=fp32",
	},
	"torchtitan": {
		"params.vocab_size=61", "params.dim=16", "params.n_heads=4", "params.n_kv_heads=2", "params.n_layers=2", "params.multiple_of=8", "params.seq=7", "train.precision=fp32",
	},
	"llama":        {"params.vocab=61", "params.d=16", "params.heads=4", "params.kv=2", "params.layers=2", "params.ff=24", "params.ctx=9", "params.seq=7"},
	"lenet":        {},
	"lstm":         {"params.vocab=50", "params.d=8", "params.hidden=12", "params.seq=6", "params.dropout=0.2", "params.bi=true"},
	"mha":          {},
	"mlp":          {},
	"mlp_mixer":    {"params.img=32", "params.d=16", "params.tokens=8", "params.channels=24", "params.layers=2", "params.classes=10"},
	"mnasnet":      {"params.img=64", "params.classes=10"},
	"mobilenet_v3": {"params.img=64", "params.classes=10", "params.net=small"},
	"resnet":       {"params.depth=18", "params.img=32", "params.classes=10"},
	"seq2seq": {
		"params.src_vocab=40", "params.tgt_vocab=40", "params.d=16", "params.heads=2", "params.encoder_layers=1", "params.decoder_layers=1", "params.ff=24",
		"params.src_len=6", "params.tgt_len=5", "params.maxlen=8",
	},
	"shufflenet_v2":      {"params.img=64", "params.classes=10"},
	"squeezenet":         {"params.img=64", "params.classes=10"},
	"unet":               {"params.img=32", "params.base=4", "params.depth=2"},
	"vision_transformer": {"params.img=16", "params.patch=8", "params.d=12", "params.heads=2", "params.depth=2", "params.classes=10"},
	"vit":                {"params.img=8", "params.patch=4", "params.d=12", "params.heads=2", "params.layers=2", "params.classes=5", "params.dropout=0.1"},
}

// largePresets are settings of presets that take long all the same.
var largePresets = map[string][]string{
	"alexnet": {"params.img=64", "params.classes=10"}, "convnext": {"params.img=32", "params.classes=10"}, "densenet": {"params.img=64", "params.classes=10"},
	"gpt2": {"params.seq=4"}, "distillation": {"params.teacher_depth=18", "params.classes=10"}, "efficientnet": {"params.img=64", "params.classes=10"},
	"googlenet": {"params.img=64", "params.classes=10"}, "mobilenet_v2": {"params.img=64", "params.classes=10"}, "regnet": {"params.img=64", "params.classes=10"},
	"segmentation": {"params.img=32"}, "swin": {"params.img=64", "params.classes=10"}, "vgg": {"params.img=32", "params.classes=10"},
}

// TestPresets runs two steps of every preset on the CPU, with every block poisoned
// when it is handed out and when it is freed.
func TestPresets(t *testing.T) {
	for _, preset := range specs.Names() {
		t.Run(preset, func(t *testing.T) {
			set, known := smallPresets[preset]
			if !known {
				if set, known = largePresets[preset]; !known {
					t.Fatal("the preset has no settings for this test")
				}
				needs.Time(t, "executes a large model")
			}
			j := job(t, preset, append([]string{"device.gpu=a100-40gb", "train.batch_size=2"}, set...)...)
			predicted, err := estimate.Run(j)
			if err != nil {
				t.Fatal(err)
			}
			device := cpu.New(8 * tensor.GiB)
			r, err := Run(context.Background(), j.Program, j.Machine.Env, Options{Device: device, Config: j.Machine.Conf, Steps: 2, Seed: 1, Poison: true})
			if err != nil {
				t.Fatal(err)
			}
			if err := device.Close(); err != nil {
				t.Error(err)
			}
			for _, s := range r.Steps {
				if math.IsNaN(s.Loss) || math.IsInf(s.Loss, 0) {
					t.Errorf("the loss of step %d is %v", s.Step, s.Loss)
				}
			}
			// Two steps may fall short of the peak of all.
			if a, b := r.Stats.AllocatedBytes.All.Peak, predicted.Free.PeakAllocated.Allocated; a > b {
				t.Errorf("peak allocated %d, predicted %d", a, b)
			}
		})
	}
}
