package importer

import (
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/spec"
)

// dpoKeys are the keys of Axolotl with the arguments of DPOConfig that have their values
// (core/trainers/dpo).
var dpoKeys = []struct{ key, is string }{
	{"rl_beta", "beta"}, {"dpo_loss_type", "loss_type"}, {"dpo_loss_weights", "loss_weights"}, {"dpo_label_smoothing", "label_smoothing"}, {"dpo_use_weighting", "use_weighting"},
	{"dpo_padding_free", "padding_free"}, {"dpo_use_liger_kernel", "use_liger_kernel"}, {"precompute_ref_log_probs", "precompute_ref_log_probs"},
}

// dpo reports whether the loop is that of TRL's DPOTrainer.
func (j *job) dpo() bool { return slices.Contains([]string{"dpo", "ipo"}, j.str("rl", "")) }

// axolotlDPO turns the loop into that of DPOTrainer, of which Axolotl's AxolotlDPOTrainer is
// made.
func (j *job) axolotlDPO() {
	if !j.dpo() {
		return
	}
	rl := j.get("rl")
	j.loop("dpo")
	dpo := "trainer.dpo."
	for _, k := range dpoKeys {
		if v := j.get(k.key); v != nil && v.Kind != spec.Null {
			j.set(dpo+k.is, k.key, v)
		}
	}
	if j.str("rl", "") == "ipo" {
		j.put(dpo+"loss_type", "[ipo]", rl)
	}
	j.put(dpo+"max_length", stringOf(j.count("sequence_len", 512)), j.get("sequence_len"))
	for _, k := range []string{"bf16", "gradient_checkpointing"} { // which are on in DPOConfig
		if j.out.get(dpo+k) == nil {
			j.put(dpo+k, "false", nil)
		}
	}
	j.put("trainer.empty_cache", "true", nil).why = "AxolotlDPOTrainer.training_step"
	if j.on("adapter") {
		j.doubt(rl, "rl: %s: TRL copies the adapter of a model that has one, and the copy is the reference; planned with the model without its adapter, which takes less by the size of the adapter", rl.Str)
		return
	}
	// setup_reference_model of train.py reads the model a second time, in the same way.
	kw := dpo + "model_init_kwargs."
	j.put(kw+"dtype", j.out.says("model.load.dtype"), nil)
	j.put(kw+"device_map", "null", nil)
	if c := j.out.get("model.load.convert"); c != nil {
		j.put(kw+"convert", "", nil).list = c.list
	}
	if attn := j.out.says("model.with.attn"); attn != "" {
		j.put(kw+"attn_implementation", attn, nil)
	}
}

// loop gives what was written for transformers.Trainer to another trainer.
func (j *job) loop(trainer string) {
	of := *j.format
	if n := j.out.get("trainer." + of.Trainer); n != nil {
		n.key = trainer
	}
	from, to := "trainer."+of.Trainer+".", "trainer."+trainer+"."
	of.Trainer, j.format = trainer, &of
	for path, key := range j.keys {
		if rest, ok := strings.CutPrefix(path, from); ok {
			delete(j.keys, path)
			j.keys[to+rest] = key
		}
	}
}
