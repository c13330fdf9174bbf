package importer

import (
	"strings"
	"testing"
)

// TestImageErrors holds what is said of files whose images cannot be.
func TestImageErrors(t *testing.T) {
	const (
		lf      = "model_name_or_path: google/gemma-3-4b-it\nstage: sft\ndo_train: true\ntemplate: gemma3\ndataset: mllm_demo\n"
		axolotl = "base_model: google/gemma-3-4b-it\nprocessor_type: AutoProcessor\nmicro_batch_size: 1\n"
	)
	for _, c := range []struct{ text, want string }{
		{lf + "image_max_pixels: 100\n", "job.yml:6:19: image_max_pixels is 100, fewer than image_min_pixels, 1024"},
		{lf + "image_min_pixels: 1000000\n", "job.yml:6:19: image_max_pixels is 589824, fewer than image_min_pixels, 1000000"},
		{lf + "image_max_pixels: large\n", "job.yml:6:19: image_max_pixels must be a whole number of 1 or more"},
		{lf + "cutoff_len: 128\n", "job.yml:6:13: cutoff_len: 128 tokens have no room for the 256 of an image"},
		{axolotl + "sequence_len: 200\n", "job.yml:4:15: sequence_len: 200 tokens have no room for the 256 of an image"},
		{axolotl + "image_size: [512]\n", "job.yml:4:13: image_size must be a whole number of 1 or more, or a list of a width and a height, not a list of 1"},
		{axolotl + "image_size: [512, x]\n", "job.yml:4:19: image_size must be a whole number of 1 or more, or a list of a width and a height"},
		{axolotl + "image_size: 0\n", "job.yml:4:13: image_size must be a whole number of 1 or more"},
	} {
		_, err := Read([]File{{"job.yml", []byte(c.text)}}, Options{Config: func(string) []byte { return []byte(`{"model_type": "gemma3"}`) }})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.text, err, c.want)
		}
	}
}

// TestSmartTokens compares with smart_resize of transformers 5.12, which has its result in
// pixels.
func TestSmartTokens(t *testing.T) {
	for _, c := range []struct{ patch, width, height, want int64 }{
		{14, 512, 512, 18 * 18}, {14, 640, 480, 23 * 17}, {14, 768, 768, 27 * 27}, {14, 70, 70, 2 * 2}, {14, 98, 98, 4 * 4}, {16, 512, 512, 16 * 16},
	} {
		v := vision{}
		v.Vision.Patch, v.Vision.Merge = square(c.patch), 2
		if got := v.smartTokens(c.width, c.height); got != c.want {
			t.Errorf("%d x %d in patches of %d: %d tokens, want %d", c.width, c.height, c.patch, got, c.want)
		}
	}
}

// TestImageTokens reads of config.json how many tokens an image has.
func TestImageTokens(t *testing.T) {
	for _, c := range []struct {
		config string
		want   int64
	}{
		{`{"model_type": "gemma3"}`, 256},
		{`{"model_type": "llava", "vision_config": {"model_type": "clip_vision_model", "image_size": 336, "patch_size": 14}}`, 576},
		{`{"model_type": "llava", "vision_feature_select_strategy": "full", "vision_config": {"model_type": "clip_vision_model", "image_size": 336, "patch_size": 14}}`, 577},
		{`{"model_type": "llava", "vision_feature_select_strategy": "full", "vision_config": {"model_type": "siglip_vision_model", "image_size": 384, "patch_size": 14}}`, 729},
		{`{"model_type": "llava"}`, 576},
		{`{"model_type": "llava", "vision_config": {"model_type": "clip_vision_model", "patch_size": 14}}`, 256},
		{`{"model_type": "llava", "vision_feature_select_strategy": "full", "vision_config": {"model_type": "siglip_vision_model"}}`, 196},
		{`{"model_type": "llava", "vision_config": {"model_type": "pixtral", "image_size": 1024, "patch_size": 16}}`, 0},
		{`{"model_type": "internvl", "vision_config": {"image_size": [448, 448], "patch_size": [14, 14]}}`, 256},
		{`{"model_type": "internvl", "downsample_ratio": 0.25, "vision_config": {"image_size": 448, "patch_size": 14}}`, 64},
		{`{"model_type": "qwen2_vl"}`, 0},
	} {
		j := &job{beside: map[*Format]*file{}, opts: Options{Config: func(string) []byte { return []byte(c.config) }}}
		if err := j.add(File{"job.yml", []byte("model_name_or_path: a/b\nstage: sft\ndo_train: true\n")}); err != nil {
			t.Fatal(err)
		}
		j.named = "a/b"
		if got := j.imageTokens(); got != c.want {
			t.Errorf("%s: %d tokens, want %d", c.config, got, c.want)
		}
	}
}

// TestDatasets reads dataset_info.json of dataset_dir before it takes datasets for LLaMA-Factory's own.
func TestDatasets(t *testing.T) {
	info := `{"mine": {"columns": {"images": "pictures"}}, "identity": {"columns": {"videos": "films"}}, "plain": {}}`
	for _, c := range []struct {
		name  string
		want  dataset
		known bool
	}{
		{"mine, plain", dataset{images: true}, true}, {"plain", dataset{}, true}, {"identity", dataset{videos: true}, true},
		{"mllm_demo", dataset{images: true}, true}, {"unheard", dataset{}, false},
	} {
		text := "model_name_or_path: a/b\nstage: sft\ndo_train: true\ndataset_dir: own\ndataset: " + c.name + "\n"
		j := &job{beside: map[*Format]*file{}, opts: Options{ReadFile: func(name string) ([]byte, error) {
			if name != "own/dataset_info.json" {
				t.Errorf("reads %s", name)
			}
			return []byte(info), nil
		}}}
		if err := j.add(File{"job.yml", []byte(text)}); err != nil {
			t.Fatal(err)
		}
		if got, known := j.lfDatasets(); got != c.want || known != c.known {
			t.Errorf("%s: %+v, known: %v", c.name, got, known)
		}
	}
}
