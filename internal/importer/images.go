package importer

import (
	"encoding/json"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/spec"
)

// pictured is what programs make of the images of a model type.
type pictured struct {
	tokens func(vision) int64 // of an image, which is played by the param images of the model's preset; nil, or 0: it is not
	fixed  bool               // its processor makes all images as large as vision_config says
	around int64              // tokens of text that the processor writes around an image's own
	smart  bool               // its processor makes them of whole patches (smart_resize)
}

// pictures has the model types of text and images. Gemma3Processor writes an empty line and a
// mark before and behind each image, InternVL's a mark.
var pictures = map[string]pictured{
	"gemma3":         {tokens: func(v vision) int64 { return v.Tokens }, fixed: true, around: 4},
	"gemma4":         {},
	"gemma4_unified": {},
	"glm46v":         {},
	"glm4v":          {},
	"internvl":       {tokens: vision.shuffled, fixed: true, around: 2},
	"lfm2_vl":        {},
	"llava":          {tokens: vision.selected, fixed: true},
	"mistral3":       {},
	"mllama":         {},
	"qwen2_5_vl":     {smart: true},
	"qwen2_vl":       {smart: true},
	"qwen3_vl":       {smart: true},
	"qwen3_vl_moe":   {smart: true},
	"smolvlm":        {},
}

// vision is what a config.json says of images.
type vision struct {
	Tokens   int64   `json:"mm_tokens_per_image"`
	Strategy string  `json:"vision_feature_select_strategy"`
	Ratio    float64 `json:"downsample_ratio"`
	Vision   struct {
		Type  string `json:"model_type"`
		Image square `json:"image_size"`
		Patch square `json:"patch_size"`
		Merge int64  `json:"spatial_merge_size"`
	} `json:"vision_config"`
}

// square is a side, which some files have as a list of a height and a width.
type square int64

func (s *square) UnmarshalJSON(text []byte) error {
	sides := []int64{0}
	if json.Unmarshal(text, &sides[0]) != nil {
		if err := json.Unmarshal(text, &sides); err != nil || len(sides) == 0 {
			return err
		}
	}
	*s = square(sides[0])
	return nil
}

// vision is that of the job's model, with the defaults of its library.
func (j *job) vision() vision {
	v := vision{Tokens: 256, Strategy: "default", Ratio: 0.5}
	v.Vision.Patch, v.Vision.Merge = 14, 2
	switch of := j.modelType(); {
	case strings.HasPrefix(of, "qwen3"):
		v.Vision.Patch = 16
	case of == "internvl":
		v.Vision.Image = 448
	case of == "llava":
		v.Vision.Type, v.Vision.Image = "clip_vision_model", 336
	}
	if j.opts.Config != nil {
		text := j.opts.Config(j.named)
		if j.modelType() == "llava" {
			v.towerDefaults(text)
		}
		_ = json.Unmarshal(text, &v) // mistakes are reported where the model is made
	}
	v.Tokens, v.Vision.Patch, v.Vision.Merge = max(v.Tokens, 1), max(v.Vision.Patch, 1), max(v.Vision.Merge, 1)
	return v
}

// towerDefaults are the sizes that a vision_config of LLaVA need not have: those of its type's
// class (CLIPVisionConfig, SiglipVisionConfig). Without one they stay those of LlavaConfig.
func (v *vision) towerDefaults(text []byte) {
	var given struct {
		Vision *struct {
			Type string `json:"model_type"`
		} `json:"vision_config"`
	}
	if err := json.Unmarshal(text, &given); err != nil || given.Vision == nil {
		return
	}
	v.Vision.Image, v.Vision.Patch = 224, 32
	if given.Vision.Type == "siglip_vision_model" {
		v.Vision.Patch = 16
	}
}

// side is how many patches an image has side by side.
func (v vision) side() int64 { return int64(v.Vision.Image / v.Vision.Patch) }

// shuffled are the tokens of an image of InternVL, whose features come together
// (pixel_shuffle).
func (v vision) shuffled() int64 {
	side := int64(float64(v.side()) * v.Ratio)
	return side * side
}

// selected are the tokens of an image of LLaVA: the patches, and what CLIP has before them,
// less the first of them by the strategy default. 0: its vision model is another.
func (v vision) selected() int64 {
	n := v.side() * v.side()
	switch v.Vision.Type {
	case "clip_vision_model":
		n++
	case "siglip_vision_model":
	default:
		return 0
	}
	if v.Strategy == "default" {
		n--
	}
	return n
}

// imageTokens are the tokens of an image of the job's model; 0: it is not played.
func (j *job) imageTokens() int64 {
	if p := pictures[j.modelType()]; p.tokens != nil {
		return p.tokens(j.vision())
	}
	return 0
}

// sees reports whether the model is planned with a vision model; hears whether it has one of sound.
func (j *job) sees() bool {
	_, ok := pictures[j.modelType()]
	return ok
}

func (j *job) hears() bool { return j.config().Audio != nil || j.isType("voxtral") }

// smartTokens are the tokens of an image of width × height, which smart_resize
// (models/qwen2_vl/image_processing_qwen2_vl.py of transformers) makes of whole patches.
func (v vision) smartTokens(width, height int64) int64 {
	factor := float64(int64(v.Vision.Patch) * v.Vision.Merge)
	whole := func(n int64) int64 { return max(1, int64(math.RoundToEven(float64(n)/factor))) }
	return whole(width) * whole(height)
}

// imageSamples is what a file says of the images of its samples.
type imageSamples struct {
	at            *spec.Value // that speaks of them
	why           string      // why a sample has one; "": it has none
	width, height int64       // of an image at most; 0: not known
	size          string      // what says so
}

// images writes how many images a sample has, if they can be played, and says so if not. It
// returns the number of a sample's images.
func (j *job) images(s imageSamples) int64 {
	p := pictures[j.modelType()]
	if s.why == "" {
		return 0
	}
	if why := j.unpictured(); why != "" {
		tokens := ""
		if p.smart && s.width > 0 {
			tokens = fmt.Sprintf(", %d for one of %d x %d, as %s has it", j.vision().smartTokens(s.width, s.height), s.width, s.height, s.size)
		}
		j.doubt(s.at, "images: %s; planned with the vision model in memory, but not called. Their tokens are among those of a sample%s", why, tokens)
		return 0
	}
	j.assume(s.at, "%s (--set params.images=N)", s.why)
	j.put("params.images", "1", s.at)
	j.put("model.with.images", `"${images}"`, nil)
	return 1
}

// unpictured is why the images of samples are not played; "": they are.
func (j *job) unpictured() string {
	of := j.modelType()
	switch attn := j.out.says("model.with.attn"); {
	case j.imageTokens() == 0:
		return "what the vision model of " + of + " takes for them is not modelled"
	case strings.HasPrefix(attn, "flash_attention"):
		return attn + " of " + of + " with images is not modelled"
	case j.out.says("model.cut_cross_entropy") == "true":
		return "Cut Cross Entropy of " + of + " with images is not modelled"
	case j.pairs, j.says("stage", "kto"):
		return "preference training of " + of + " with images is not modelled"
	case j.out.get("trainer.flattening") != nil:
		return "samples of " + of + " that are one sequence, with images, are not modelled"
	case j.on("label_smoothing_factor"):
		return "label_smoothing_factor of " + of + " with images is not modelled"
	case j.out.says("model.task") != "causal-lm":
		return j.out.says("model.task") + " of " + of + " with images is not modelled"
	}
	return ""
}

// ofProcessor is why sizes of images have no effect.
const ofProcessor = "the model's processor makes all images as large as its vision model takes them"

// leaveGiven notes that the spec does not have those of the keys that the file has.
func (j *job) leaveGiven(why string, keys ...string) {
	for _, k := range keys {
		if j.get(k) != nil {
			j.leave(why, k)
		}
	}
}

// cut says where sequences have no room for an image: what programs cut of its tokens the
// model misses.
func (j *job) cut(key string, most, images int64) {
	at := j.get(key)
	if at == nil {
		at = j.doc.Root
	}
	if n := images * j.imageTokens(); most < n {
		j.doc.Errs.Addf(at.Span, "%s: %d tokens have no room for the %d of an image, and the model fails where some are cut; write %d or more", key, most, n, n)
	}
}

// lfPictured are the templates that have a token for images (data/template.py). Without one
// LLaMA-Factory takes no images.
var lfPictured = strings.Fields("dots_ocr ernie_vl gemma3 gemma3n gemma4 gemma4n glm4v glm4_5v glm_ocr granite3_vision intern_vl intern_s1 keye_vl kimi_vl lfm2_vl llama4 mllama moss_vl llava llava_next llava_next_llama3 llava_next_mistral llava_next_qwen llava_next_yi llava_next_video llava_next_video_mistral llava_next_video_yi mimo_vl minicpm_v minicpm_v_4_6 minicpm_o mistral_small ministral3 paligemma paligemma_chat pixtral qwen2_omni qwen3_omni qwen3_omni_nothink qwen2_vl qwen3_vl qwen3_vl_nothink qwen3_5 qwen3_5_nothink qwen3_6 video_llava yi_vl youtu_vl")

// lfData are datasets of LLaMA-Factory's own data/dataset_info.json that have more than
// texts; lfTexts are the first of those that have texts alone.
var (
	lfData = map[string]dataset{
		"mllm_demo": {images: true}, "mllm_pt_demo": {images: true}, "llava_1k_en": {images: true}, "llava_1k_zh": {images: true},
		"llava_150k_en": {images: true}, "llava_150k_zh": {images: true}, "pokemon_cap": {images: true}, "rlhf_v": {images: true},
		"vlfeedback": {images: true}, "rlaif_v": {images: true}, "mllm_audio_demo": {audios: true}, "mllm_video_demo": {videos: true},
		"mllm_video_audio_demo": {videos: true, audios: true},
	}
	lfTexts = strings.Fields("identity alpaca_en_demo alpaca_zh_demo glaive_toolcall_en_demo glaive_toolcall_zh_demo alpaca_en alpaca_zh alpaca_gpt4_en alpaca_gpt4_zh glaive_toolcall_en glaive_toolcall_zh lima guanaco open_platypus codealpaca openorca slimorca mathinstruct ultrachat_200k magpie_ultra dpo_en_demo dpo_zh_demo ultrafeedback kto_en_demo wiki_demo c4_demo")
)

// dataset is what LLaMA-Factory's dataset_info.json says of one.
type dataset struct{ images, videos, audios bool }

// lfDatasets are the datasets that the file names, and whether all are known: by the file
// dataset_info.json of dataset_dir, or as LLaMA-Factory's own.
func (j *job) lfDatasets() (all dataset, known bool) {
	var info map[string]struct {
		Columns map[string]any `json:"columns"`
	}
	if j.opts.ReadFile != nil {
		if text, err := j.opts.ReadFile(path.Join(j.str("dataset_dir", "data"), "dataset_info.json")); err == nil {
			_ = json.Unmarshal(text, &info) // which is for the program to refuse
		}
	}
	v := j.get("dataset")
	if v == nil {
		return all, false
	}
	known = true
	for _, name := range words(v) {
		own, is := lfData[name]
		if d, ok := info[name]; ok {
			is = true
			own.images, own.videos, own.audios = d.Columns["images"] != nil, d.Columns["videos"] != nil, d.Columns["audios"] != nil
		}
		known = known && (is || slices.Contains(lfTexts, name))
		all.images, all.videos, all.audios = all.images || own.images, all.videos || own.videos, all.audios || own.audios
	}
	return all, known
}

// lfImages says what images samples have (data/mm_plugin.py, data/collator.py). It returns
// how many tokens more than cutoff_len a sequence has: those of an image that LLaMA-Factory
// adds to a batch without one, so that the vision model is called.
func (j *job) lfImages() (more int64) {
	if j.on("image_max_pixels") || j.on("image_min_pixels") {
		if most, least := j.count("image_max_pixels", 768*768), j.count("image_min_pixels", 32*32); most < least {
			at := j.get("image_max_pixels")
			if at == nil {
				at = j.get("image_min_pixels")
			}
			j.doc.Errs.Addf(at.Span, "image_max_pixels is %d, fewer than image_min_pixels, %d", most, least)
		}
	}
	at := j.get("dataset")
	if at == nil {
		at = j.get("model_name_or_path")
	}
	data, known := j.lfDatasets()
	if data.audios && j.hears() || data.videos && j.sees() {
		j.doubt(at, "videos and sound of the samples; planned without")
	}
	keys := []string{"image_max_pixels", "image_min_pixels", "image_do_pan_and_scan", "crop_to_patches"}
	if !j.sees() {
		j.leaveGiven("sizes of images, of which the samples have none", keys...)
		j.leaveGiven(ofData, "dataset", "dataset_dir")
		j.leaveGiven(ofText, "template")
		return 0
	}
	switch v := j.get("template"); {
	case v == nil:
		j.assume(j.get("model_name_or_path"), "without template there is no token for images: the samples have none, and the vision model is not called")
		return 0
	case !slices.Contains(lfPictured, j.str("template", "")):
		j.assume(v, "template: %s has no token for images: the samples have none, and the vision model is not called", v.Str)
		return 0
	}
	p := pictures[j.modelType()]
	if p.fixed {
		j.leaveGiven(ofProcessor, keys[:2]...)
	}
	if v := j.get("image_do_pan_and_scan"); given(v) && j.isType("gemma3") {
		j.doubt(v, "image_do_pan_and_scan: up to four more images of each whose sides differ by more than a fifth; planned with square ones (--set params.images=N)")
	}
	if v := j.get("crop_to_patches"); given(v) && j.isType("internvl") {
		j.doubt(v, "crop_to_patches: up to twelve tiles of each image, and one of the whole; planned with one (--set params.images=N)")
	}
	side := int64(math.Sqrt(float64(j.count("image_max_pixels", 768*768))))
	s := imageSamples{at: at, width: side, height: side, size: "image_max_pixels"}
	switch {
	case data.images:
		s.why = "every sample has one image, as files do not say how many"
	case !known:
		s.why = "every sample has one image, as files do not say which have some"
	default:
		s.why = "a batch without images gets one of LLaMA-Factory's own, at the end of its first sample"
		if n := j.count("per_device_train_batch_size", 8); n > 1 {
			s.why += fmt.Sprintf("; planned with one in each of its %d", n)
		}
	}
	n := j.images(s)
	if n > 0 && known && !data.images {
		return j.imageTokens() + p.around
	}
	j.cut("cutoff_len", j.count("cutoff_len", 2048), n)
	return 0
}

// axolotlPictured reports whether samples go through the model's processor
// (MultiModalChatDataCollator of utils/collators/mm_chat.py).
func (j *job) axolotlPictured() bool {
	return j.on("processor_type") && !j.on("sample_packing") && !j.on("rl") && (j.sees() || j.hears())
}

// axolotlImages says what images samples have (processing_strategies.py).
func (j *job) axolotlImages() {
	at := j.get("processor_type")
	width, height := j.imageSize()
	p := pictures[j.modelType()]
	keys := []string{"image_size", "image_resize_algorithm"}
	switch {
	case !j.sees():
		j.leaveGiven("sizes of images, of which the samples have none", keys...)
		return
	case !given(at):
		j.assume(j.doc.Root.Get("base_model"), "without processor_type the samples are texts: the vision model is in memory, and is not called")
		j.leaveGiven("sizes of images, of which the samples have none", keys...)
		return
	case !j.axolotlPictured():
		j.doubt(at, "images with sample_packing or rl; planned with texts: the vision model is in memory, and is not called")
		return
	}
	switch {
	case p.fixed:
		j.leaveGiven(ofProcessor, keys...)
	default:
		j.leaveGiven("how an image is made smaller, not how small", keys[1])
	}
	n := j.images(imageSamples{at: at, width: width, height: height, size: "image_size",
		why: "every sample has one image, as files do not say how many; of a column of images Axolotl takes the first"})
	j.cut("sequence_len", j.count("sequence_len", 512), n)
}

// imageSize is what image_size makes of an image: a number is a square that is padded, a
// list its width and height.
func (j *job) imageSize() (width, height int64) {
	v := j.get("image_size")
	if v == nil {
		return 0, 0
	}
	if v.Kind != spec.List {
		n := j.count("image_size", 0)
		return n, n
	}
	for _, it := range v.Items {
		if it.Kind != spec.Int || it.Int < 1 || it.Int > maxCount {
			j.fail(it, "image_size must be a whole number of 1 or more, or a list of a width and a height, not %s", it.Describe())
		}
	}
	if len(v.Items) != 2 {
		j.fail(v, "image_size must be a whole number of 1 or more, or a list of a width and a height, not a list of %d", len(v.Items))
	}
	return v.Items[0].Int, v.Items[1].Int
}

// otherImages says that a program's samples are planned without images.
func (j *job) otherImages(key string) {
	if j.sees() {
		j.assume(j.doc.Root.Get(key), "the samples are texts: the vision model is in memory, and is not called (--set model.with.images=N of gemma3, internvl and llava)")
	}
}
