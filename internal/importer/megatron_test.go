package importer_test

import (
	"strings"
	"testing"

	"github.com/memplan/memplan/internal/importer"
)

// A shell script gives arguments in arrays and after backslashes, with variables and comments.
func TestMegatronScript(t *testing.T) {
	const script = `#!/bin/bash
GPUS_PER_NODE=8
export NODES=2
ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes ${NODES}
)
torchrun ${ARGS[@]} pretrain_gpt.py \
    --num-layers 24 --hidden-size=1024 \
    --num-attention-heads 16 \
    --tensor-model-parallel-size 4 # of a node
    --bf16 \
    --data-path $1
# --fp16
`
	made, err := importer.Read([]importer.File{{Name: "pretrain.sh", Text: []byte(script)}}, importer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const want = `  megatron:
    num_layers: 24
    hidden_size: 1024
    num_attention_heads: 16
    tensor_model_parallel_size: 4
    bf16: true
    world_size: 16
`
	if !strings.Contains(string(made.Text), want) {
		t.Errorf("%s", made.Text)
	}
	if !importer.Is("pretrain.sh", []byte(script)) {
		t.Error("the script is not recognized")
	}
}

// Arguments that are not known, and variables that reach memory and are not set, are mistakes
// with their line.
func TestMegatronMistakes(t *testing.T) {
	for args, want := range map[string]string{
		"{MODEL_ARGS: {--num-layers: 2, --num-layrs: 2}}":            `a.yaml:1:32: unknown argument of Megatron-LM 0.15 "num_layrs"; did you mean "num_layers"?`,
		`{MODEL_ARGS: {--num-layers: $LAYERS, --save: "${FOLDER}"}}`: "a.yaml:1:29: --num-layers is $LAYERS, which the file does not set",
		"{MODEL_ARGS: 3}": "MODEL_ARGS is a mapping",
	} {
		_, err := importer.Read([]importer.File{{Name: "a.yaml", Text: []byte(args)}}, importer.Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", args, err, want)
		}
	}
}

// A value ends where the shell, a program or an array goes on; of what is repeated the last
// counts, and what torchrun is told is read or a mistake.
func TestMegatronWords(t *testing.T) {
	const model = " --num-layers 4 --hidden-size 1024 --num-attention-heads 16 "
	for script, want := range map[string]string{
		"torchrun --nnodes 1 --nproc_per_node 8 pretrain_gpt.py" + model + "--bf16 2>&1 | tee log":   "num_attention_heads: 16\n    bf16: true\n    world_size: 8\n",
		"torchrun --nproc_per_node=8 a.py" + model + "--micro-batch-size 2 --micro-batch-size 4":     "micro_batch_size: 4\n    world_size: 8\n",
		"torchrun --nproc_per_node=8 a.py" + model + "--bf16 ${OTHER[@]}":                            "bf16: true\n    world_size: 8\n",
		"torchrun --nproc_per_node=8 a.py" + model + "--bf16; echo done":                             "bf16: true\n    world_size: 8\n",
		"torchrun --nproc_per_node=8 a.py" + model + "--bf16 && echo done":                           "bf16: true\n    world_size: 8\n",
		"TP=${TP:-2}\ntorchrun --nproc_per_node 8 a.py" + model + "--tensor-model-parallel-size $TP": "tensor_model_parallel_size: 2\n    world_size: 8\n",
		"torchrun --nnodes 2 a.py" + model:                                                           "world_size: 2\n",
		"torchrun --nproc_per_node gpu a.py" + model:                                                 "a.sh:1:35: --nproc_per_node is a number",
		"N=1\nN=$((2*4))\ntorchrun --nproc_per_node $N a.py" + model:                                 "a.sh:3:21: --nproc_per_node is a number",
	} {
		made, err := importer.Read([]importer.File{{Name: "a.sh", Text: []byte(script)}}, importer.Options{})
		got := ""
		if made != nil {
			got = string(made.Text)
		}
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: got\n%s, want %s", script, got, want)
		}
	}
}
