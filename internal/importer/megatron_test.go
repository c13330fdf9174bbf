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
