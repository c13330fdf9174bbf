package estimate

import "testing"

// TestPrecision: the type of weights is told from that of autocast.
func TestPrecision(t *testing.T) {
	const head = "memplan: 1\n"
	model := func(keys string) string {
		return head + "model: {hf: gpt2, " + keys + "with: {seq: 8, n_layer: 1, n_embd: 8, n_head: 2, vocab_size: 16}}\n"
	}
	for _, c := range []struct{ text, want string }{
		{model("") + "train: {batch_size: 1, precision: amp-bf16}\n", "amp-bf16"},
		{model("") + "trainer: {hf: {bf16: true}}\n", "amp-bf16"},
		{model("dtype: bfloat16, ") + "trainer: {hf: {}}\n", "bf16"},
		{model("dtype: bfloat16, ") + "trainer: {hf: {bf16: true}}\n", "bf16 weights, amp-bf16"},
		{model("load: {dtype: float16}, ") + "trainer: {hf: {}}\n", "fp16"},
		{model("load: {dtype: float32}, ") + "trainer: {hf: {bf16: true}}\n", "amp-bf16"},
		{model("load: {dtype: bfloat16, quantization_config: {load_in_4bit: true}}, ") + "peft: {lora: {r: 2}}\ntrainer: {hf: {bf16: true}}\n", "4-bit weights, amp-bf16"},
	} {
		if o, _ := estimateText(t, c.text); o.Job.precision() != c.want {
			t.Errorf("%s%s, want %s", c.text, o.Job.precision(), c.want)
		}
	}
}
