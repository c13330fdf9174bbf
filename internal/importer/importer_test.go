package importer

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/memplan/memplan/internal/needs"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/spec/spectest"
)

var update = flag.Bool("update", false, "rewrite the specs of testdata/jobs")

// read makes the spec of an archive's files. Lines of its comment say what the
// command line does; a JSON with zero in its name is one that the job names, and
// config.json is that of its model.
func read(a *txtar.Archive) (*Job, error) {
	var list []File
	o := Options{Config: func(string) []byte {
		if i := slices.IndexFunc(a.Files, func(f txtar.File) bool { return f.Name == "config.json" }); i >= 0 {
			return a.Files[i].Data
		}
		return nil
	}, ReadFile: func(name string) ([]byte, error) {
		if i := slices.IndexFunc(a.Files, func(f txtar.File) bool { return f.Name == name }); i >= 0 {
			return a.Files[i].Data, nil
		}
		return nil, fs.ErrNotExist
	}}
	for _, line := range strings.Split(string(a.Comment), "\n") {
		if s, ok := strings.CutPrefix(line, "set: "); ok {
			o.Set = strings.Fields(s)
		}
		if s, ok := strings.CutPrefix(line, "processes: "); ok {
			fmt.Sscan(s, &o.Processes)
		}
		o.Lengths = o.Lengths || line == "lengths: given"
	}
	for _, f := range a.Files {
		if f.Name != "want" && f.Name != "config.json" && !strings.HasPrefix(f.Name, "zero") {
			list = append(list, File{f.Name, f.Data})
		}
	}
	return Read(list, o)
}

// archives are the jobs of testdata.
func archives(t testing.TB) map[string]*txtar.Archive {
	paths, err := filepath.Glob(filepath.Join(needs.File(t, "jobs"), "*.txtar"))
	if err != nil || len(paths) == 0 {
		t.Fatal("no jobs", err)
	}
	out := map[string]*txtar.Archive{}
	for _, p := range paths {
		a, err := txtar.ParseFile(p)
		if err != nil {
			t.Fatal(err)
		}
		out[p] = a
	}
	return out
}

// TestRead compares the specs of jobs, which are YAML with an origin for each line.
func TestRead(t *testing.T) {
	for path, a := range archives(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			j, err := read(a)
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(j.Text), "\n"); n != len(j.Origins) {
				t.Errorf("%d lines, %d origins", n, len(j.Origins))
			}
			if d := spec.ReadDocument("spec", j.Text); d.Errs.Err() != nil {
				t.Error(d.Errs)
			}
			got := string(j.Text)
			for _, s := range j.Set {
				got += "# --set " + s + "\n"
			}
			want := &a.Files[len(a.Files)-1]
			if got == string(want.Data) {
				return
			}
			if !*update {
				t.Fatalf("got\n%s\nwant\n%s", got, want.Data)
			}
			want.Data = []byte(got)
			if err := os.WriteFile(path, txtar.Format(a), 0o644); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestKeys holds the tables: no key is in two rows, and every key says something.
func TestKeys(t *testing.T) {
	for _, f := range Formats() {
		seen := map[string]bool{}
		for _, k := range f.Keys {
			if seen[k.Name] {
				t.Errorf("%s: %s is in two rows", f.Name, k.Name)
			}
			seen[k.Name] = true
			if k.text == "" {
				t.Errorf("%s: %s says nothing", f.Name, k.Name)
			}
		}
		for k := range f.Defaults {
			if !seen[k] {
				t.Errorf("%s: the default of %s, which is no key", f.Name, k)
			}
		}
	}
}

// TestReads: code reads each key that a table has so.
func TestReads(t *testing.T) {
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var code []byte
	for _, p := range paths {
		text, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(p, "_test.go") {
			code = append(code, text...)
		}
	}
	for _, f := range Formats() {
		for _, k := range f.Keys {
			if k.effect == reads && !bytes.Contains(code, []byte(`"`+k.Name+`"`)) {
				t.Errorf("%s: nothing reads %s", f.Name, k.Name)
			}
		}
	}
}

// TestMistakes compares messages of files that are no jobs.
func TestMistakes(t *testing.T) {
	const axolotl = "base_model: a/b\ndatasets: []\nlearning_rate: 1e-4\n"
	const factory = "model_name_or_path: a/b\nstage: sft\ndo_train: true\n"
	for _, c := range []struct{ text, want string }{
		{axolotl + "micro_batch_size: many\n", `job.yml:4:19: micro_batch_size must be a whole number of 1 or more, not "many"`},
		{axolotl + "sequence_len: 99999999999999999\n", "job.yml:4:15: sequence_len must be a whole number of 1 or more, not 99999999999999999"},
		{axolotl + "rl: ebft\n", "job.yml:4:5: rl: ebft is not modelled; memplan plans dpo, ipo, kto, orpo, simpo, grpo, gdpo and, without rl, supervised training"},
		{axolotl + "rl: grpo\n", "job.yml:4:5: rl: grpo without trl.max_completion_length: completions of any length are not modelled; write it"},
		{axolotl + "rl: grpo\ntrl: {max_completion_length: 64, async_prefetch: true}\n", "job.yml:5:50: trl.async_prefetch is not modelled; write async_prefetch: false"},
		{axolotl + "rl: grpo\ntrl: {max_completion_length: 64, num_generation: 4}\n", `job.yml:5:34: trl: "num_generation" is no key that memplan knows; it knows async_prefetch`},
		{axolotl + "rl: kto\n", "job.yml:4:5: rl: kto without an adapter is not modelled: it has a second model, the reference"},
		{strings.Replace(factory, "sft", "ppo", 1), "job.yml:2:8: stage: ppo is not modelled; memplan plans sft, pt, rm, dpo and kto"},
		{axolotl + "adapter: qlora\n", "job.yml:4:10: adapter: qlora needs load_in_4bit: true"},
		{axolotl + "load_in_8bit: true\n", "job.yml:4:15: weights in 4 or 8 bits are trained with adapters alone"},
		{axolotl + "adapter: lora\nlora_r: 8\n", "job.yml:4:10: adapter: lora needs lora_target_modules or lora_target_linear: true"},
		{axolotl + "fsdp_config: {reshard: true}\n", `job.yml:4:15: unknown key of fsdp_config "reshard"`},
		{factory + "finetuning_type: full\nfsdp: hybrid_shard\n", "hybrid_shard is a strategy of FSDP1 alone, and transformers has FSDP2 by default; write fsdp_config: {version: 1}"},
		{factory + "finetuning_type: full\nfsdp: [full_shard, offlaod]\n", `unknown word "offlaod" of fsdp; allowed are full_shard`},
		{axolotl + "model_name_or_path: a/b\nstage: sft\n", "job.yml: the file has base_model, as files of Axolotl do, and model_name_or_path, which they do not have; remove the keys of one program"},
		{"adapter: lora\nlora_r: 8\n", "job.yml: the file has keys of Axolotl (adapter, lora_r), but not base_model, by which such a file is recognized"},
		{axolotl + "optim_args: {eps: [1]}\n", `job.yml:4:19: "eps" of optim_args must be a number or a string, not a list`},
		{factory + "finetuning_type: lara\n", `job.yml:4:18: unknown finetuning_type "lara"; did you mean "lora"?`},
		{factory + "stage_: 1\nfinetuning_type: freeze\n", "job.yml:5:18: finetuning_type: how many layers a/b has is not known; --model-config FILE names its config.json"},
		{factory + "quantization_bit: 3\n", "job.yml:4:19: quantization_bit is 4 or 8 with bnb, not 3"},
		{"model_name_or_path: a/b\nstage: sft\n", "the file trains nothing: do_train is not true"},
		{"model_name_or_path: a/b\nstage: sft\npipeline: 1\nuse_mca: true\n", "job.yml:4:10: use_mca: the file asks for training with Megatron, which is not modelled\n    4 | use_mca"},
		{"model_name_or_path:\nstage: sft\n", "job.yml:1:1: the file trains nothing: do_train is not true"},
		{"model_name_or_path:\nstage: sft\ndo_train: false\n", "job.yml:3:11: the file trains nothing: do_train is not true"},
		{"model_name_or_path: a/b\ntemplate: x\nexport_dir: out\n", "job.yml:3:13: export_dir: the file asks for the export of a model, which trains nothing"},
		{"model_name_or_path: a/b\ndataset_name: c\nbeta: 0.1\n", "job.yml:3:7: beta is of TRL's preference training, which memplan does not import; it plans trl sft and trl grpo, and a spec with trainer: {dpo: {...}}"},
		{`{"per_device_train_batch_size": 8}`, "the file names no model; --set model.hf=NAME does"},
		{"provider: modal\ngpu: h100\n", "comes with the file of a job"},
		{"distributed_type: FSDP\nnum_processes: 2\n", "comes with the file of a job"},
		{"colour: blue\n", "the file is of no format that memplan reads: Axolotl has base_model; "},
		{"a: [\n", "not valid YAML"},
		{"zero_optimization: {}\nper_device_train_batch_size: 1\ncompute_environment: x\n", "has keys of accelerate's configuration and of DeepSpeed's configuration"},
	} {
		_, err := Read([]File{{"job.yml", []byte(c.text)}}, Options{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q\n got  %v\n want %s", c.text, err, c.want)
		}
	}
}

// TestAllMistakes: a mistake hides no other, and keys that the program ignores are among
// them.
func TestAllMistakes(t *testing.T) {
	for text, want := range map[string][]string{
		"base_model: a/b\nload_in_4bits: true\nadapter: qlora\nlora_r: 8\nmicro_batch_size: two\nbf16: maybe\neval_steps: [1]\n": {
			`2:1: load_in_4bits: Axolotl does not know the key, and ignores it; did you mean "load_in_4bit"?`,
			"3:10: adapter: qlora needs load_in_4bit: true",
			`5:19: micro_batch_size must be a whole number of 1 or more, not "two"`,
			`6:7: bf16 must be true or false, not "maybe"`,
		},
		"model_name_or_path: a/b\nstage: sft\ndo_train: true\nlora_rnak: 8\nlearning_rte: 1\ncutoff_len: [8]\nquantization_bit: 3\n": {
			`4:1: unknown key of LLaMA-Factory "lora_rnak"; did you mean "lora_rank"?`,
			`5:1: unknown key of LLaMA-Factory "learning_rte"; did you mean "learning_rate"?`,
			"6:13: cutoff_len must be a whole number of 1 or more, not a list",
			"7:19: quantization_bit is 4 or 8 with bnb, not 3",
		},
	} {
		_, err := Read([]File{{"job.yml", []byte(text)}}, Options{})
		var got []string
		if wrong := (*spec.Errors)(nil); errors.As(err, &wrong) {
			for _, d := range wrong.Sorted() {
				got = append(got, fmt.Sprintf("%d:%d: %s", d.Line, d.Col, d.Msg))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q\n got  %q\n want %q", text, got, want)
		}
	}
}

// TestPlaces: notes are at the key that they are about.
func TestPlaces(t *testing.T) {
	j, err := Read([]File{{"job.yml", []byte("base_model: a/b\nsequence_len: 100\ncolour:\n  a: b\nbf16: auto\nval_set_size: 0.1\nevals_per_epoch: 1\ntorch_compile: true\n")}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, n := range j.Notes {
		if n.Place.Line > 0 {
			got = append(got, fmt.Sprintf("%d:%d %.20s", n.Place.Line, n.Place.Col, n.Text))
		}
	}
	want := []string{"3:1 colour: Axolotl does", "8:16 torch_compile: compi", "5:7 bf16: auto is true, ", "2:15 sequence_len 128, as", "2:15 every sample has seq", "6:15 an evaluation has 2 "}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestNumbers reads numbers as Python's yaml and pydantic do: integers of YAML 1.1, and
// strings that are numbers.
func TestNumbers(t *testing.T) {
	for in, want := range map[string]string{
		"032": "26", "-010": "-8", "1_000": "1000", "0x1F": "31", "0b101": "5", "+7": "7",
		`"032"`: "32", "08": "8", "0.50": "0.5", `"1e-1"`: "1e-1", `"007.5"`: "7.5",
		`"99999999999999999999"`: `"99999999999999999999"`, `"1e999"`: `"1e999"`,
	} {
		j, err := Read([]File{{"job.yml", []byte("base_model: a/b\nsequence_len: 128\nmicro_batch_size: 1\nrl: dpo\nrl_beta: " + in + "\n")}}, Options{})
		if err != nil {
			t.Errorf("%s: %v", in, err)
		} else if line := fmt.Sprintf("    beta: %s\n", want); !bytes.Contains(j.Text, []byte(line)) {
			t.Errorf("%s: no %q in\n%s", in, line, j.Text)
		}
	}
}

// FuzzRead reads files that are changed at random: a mistake or a spec, but never a
// panic, and never a spec that is no YAML.
func FuzzRead(f *testing.F) {
	var seeds [][]byte
	all := archives(f)
	for _, path := range slices.Sorted(maps.Keys(all)) {
		for _, file := range all[path].Files {
			if file.Name != "want" {
				seeds = append(seeds, file.Data)
			}
		}
	}
	mutator := spectest.New(seeds)
	for i, text := range seeds {
		f.Add(text)
		for seed := range uint64(20) {
			changed, err := mutator.YAML(spectest.Source(100*uint64(i)+seed), text)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(changed)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		j, err := Read([]File{{"job.yml", text}}, Options{Set: []string{"model.hf=a/b"}, Processes: 2})
		if err != nil {
			if misuse, wrong := (*MisuseError)(nil), (*spec.Errors)(nil); !errors.As(err, &misuse) && !errors.As(err, &wrong) {
				t.Errorf("%T: %v", err, err)
			}
			return
		}
		if d := spec.ReadDocument("spec", j.Text); d.Errs.Err() != nil {
			t.Errorf("%v\nof\n%s\nof\n%s", d.Errs, j.Text, text)
		}
		if n := bytes.Count(j.Text, []byte("\n")); n != len(j.Origins) {
			t.Errorf("%d lines, %d origins", n, len(j.Origins))
		}
	})
}
