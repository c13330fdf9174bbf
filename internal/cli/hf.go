package cli

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/memplan/memplan/internal/graph/hf"
	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/specs"
)

// hfPreset begins the names of presets for Hugging Face's model types.
const hfPreset = "hf/"

// isHFConfig reports whether text is a config.json of Hugging Face's
// transformers rather than a spec.
func isHFConfig(text []byte) bool {
	var v map[string]any
	return json.Unmarshal(text, &v) == nil && v["model_type"] != nil && v["memplan"] == nil
}

// wrapHF writes the spec for a config.json: its params are those of the preset
// for the model type, with the configuration's values, so that --set
// params.NAME=... changes any. Other defaults are those of the library's
// Trainer: eight samples a batch, AdamW. Said are the params that the configuration
// has.
func wrapHF(path string, text []byte) (wrapped []byte, said []string, err error) {
	c, err := hf.ParseConfig(text)
	if err != nil {
		return nil, nil, usagef("%s: %v", path, err)
	}
	preset, err := specs.Preset(hfPreset + c.Type)
	if err != nil {
		return nil, nil, unknownType(path, c.Type)
	}
	s, err := spec.Parse(presetPrefix+hfPreset+c.Type, preset, spec.Options{})
	if err != nil {
		return nil, nil, err
	}
	if c.Task != "" {
		c.Values["task"] = c.Task
	} else if c.Architecture != "" {
		c.Values["task"] = nil // to be said
	}
	var b, with strings.Builder
	fmt.Fprintf(&b, "memplan: 1\nname: %s\nparams:\n", yamlText(hfName(path, c.Type)))
	for _, p := range s.Params.Pairs {
		k := p.Key.Str
		v, given := c.Values[k]
		if slices.Contains(hf.Own, k) || p.Value.IsExpr() && !given {
			continue
		}
		if given {
			said = append(said, "params."+k)
		} else {
			v, _ = s.Env.Lookup(k)
		}
		literal, ok := yamlScalar(v)
		if !ok {
			return nil, nil, usagef("%s: %s is a list, which is not modelled", path, k)
		}
		fmt.Fprintf(&b, "  %s: %s\n", k, literal)
		fmt.Fprintf(&with, "    %s: \"${%s}\"\n", k, k)
	}
	fmt.Fprintf(&b, "model:\n  hf: %s\n  with:\n%s", yamlText(path), with.String())
	b.WriteString("train: {batch_size: 8, optimizer: AdamW}\n")
	return []byte(b.String()), said, nil
}

// unknownType says that there is no preset for a model type.
func unknownType(name, modelType string) error {
	types := specs.HFTypes()
	return usagef("%s: model_type %q is not known%s (known: %s)", name, modelType, didYouMean(modelType, types), strings.Join(types, ", "))
}

// hfName names the job after the folder of its config.json, or after the file.
func hfName(path, modelType string) string {
	if _, inCommit, ok := gitName(path); ok {
		path = inCommit
	}
	name := strings.TrimSuffix(filepath.Base(path), ".json")
	if name == "config" {
		name = filepath.Base(filepath.Dir(path))
	}
	if name == "." || name == "-" || name == string(filepath.Separator) || strings.HasPrefix(path, presetPrefix) {
		return modelType
	}
	return name
}

// yamlText writes a text as a string of a spec, in which ${ would begin an
// expression.
func yamlText(s string) string { return strconv.Quote(strings.ReplaceAll(s, "${", "${'$'}{")) }

// yamlScalar writes a value of a configuration as YAML, a list in one line.
func yamlScalar(v any) (string, bool) {
	switch v := v.(type) {
	case nil:
		return "null", true
	case string:
		return yamlText(v), true
	case int64, bool:
		return fmt.Sprint(v), true
	case float64:
		s := strconv.FormatFloat(v, 'g', -1, 64)
		if !strings.ContainsAny(s, ".e") {
			s += ".0"
		}
		return s, true
	case []any:
		items := make([]string, len(v))
		for i, it := range v {
			literal, ok := yamlScalar(it)
			if !ok {
				return "", false
			}
			items[i] = literal
		}
		return "[" + strings.Join(items, ", ") + "]", true
	}
	return "", false
}
