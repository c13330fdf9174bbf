package importer

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/memplan/memplan/internal/spec"
	"github.com/memplan/memplan/internal/trainer"
)

// megatronArguments is the key under which model_config.yaml of Megatron's tests has the
// arguments, and under which those of a shell script are read.
const megatronArguments = "MODEL_ARGS"

// The arguments of Megatron-LM's pretrain_gpt.py: a YAML file with MODEL_ARGS, or a shell script.
var megatron = &Format{
	Name: "megatron", Title: "Megatron-LM's arguments",
	Signs: [][]string{{megatronArguments}},
	Keys: slices.Concat(
		table(reads, "`trainer.megatron`, by their names with underscores", megatronArguments),
		table(none, "what runs the script", "ENV_VARS TEST_TYPE BEFORE_SCRIPT AFTER_SCRIPT SKIP_PYTEST METRICS THROUGHPUT_TEST_PARAMS MODE"),
	),
	Trainer: "megatron",
	read:    (*job).megatron,
}

// ofTorchrun are options of torchrun, and what they are, by the number of processes.
var ofTorchrun = []string{"nproc_per_node", "nnodes", "node_rank", "master_addr", "master_port", "rdzv_backend", "rdzv_endpoint", "rdzv_id", "max_restarts", "standalone", "tee", "log_dir"}

// megatron writes the arguments.
func (j *job) megatron() {
	args := j.get(megatronArguments)
	if args == nil || args.Kind != spec.Map {
		j.fail(j.doc.Root, "%s is a mapping of arguments such as --num-layers: 24", megatronArguments)
	}
	j.out.put("model.preset", spec.MegatronPreset, j.from(args))
	world := j.opts.Processes
	per, nodes := int64(0), int64(1)
	for _, p := range args.Pairs {
		name := strings.ReplaceAll(strings.TrimLeft(p.Key.Str, "-"), "-", "_")
		row := trainer.Megatron.Find(name, "")
		switch {
		case slices.Contains(ofTorchrun, name):
			switch n, err := strconv.ParseInt(p.Value.Str, 10, 64); {
			case err != nil:
			case name == "nproc_per_node":
				per = n
			case name == "nnodes":
				nodes = n
			}
		case row == nil:
			j.doc.Errs.Unknown(p.Key.Span, "argument of "+trainer.Megatron.Name, name, trainer.Megatron.Names(""))
		case row.Reach != trainer.Nothing || row.Form != trainer.Any:
			if p.Value.Kind == spec.Str && strings.Contains(p.Value.Str, "$") {
				j.fail(p.Value, "%s is %s, which the file does not set; --set %s.%s=VALUE does", p.Key.Str, p.Value.Str, megatronArguments, p.Key.Str)
			}
			j.set("trainer.megatron."+name, megatronArguments+"."+p.Key.Str, p.Value)
		}
	}
	if world == 0 {
		world = per * nodes
	}
	if world > 0 {
		j.put("trainer.megatron.world_size", strconv.FormatInt(world, 10), nil)
	}
	if j.out.get("trainer.megatron") == nil {
		j.put("trainer.megatron", "{}", nil)
	}
}

// isMegatronScript reports whether a text is a shell script that gives pretrain_gpt.py its
// arguments.
func isMegatronScript(text []byte) bool {
	s := string(text)
	return !strings.Contains(s, megatronArguments+":") && strings.Contains(s, "--num-layers") && strings.Contains(s, "--hidden-size") && strings.Contains(s, "--num-attention-heads")
}

// assignment is a variable that a line of a script sets; reference is where one is read.
var (
	assignment = regexp.MustCompile(`^\s*(?:export\s+)?([A-Za-z_][A-Za-z_0-9]*)=("[^"]*"|'[^']*'|[^\s(;]*)\s*(?:#.*)?$`)
	reference  = regexp.MustCompile(`\$\{?([A-Za-z_][A-Za-z_0-9]*)\}?`)
)

// megatronScript writes the arguments in a shell script as YAML with the same lines: what
// begins with two dashes, and the words after it. Variables are what the script sets last before.
func megatronScript(text []byte) []byte {
	vars := map[string]string{}
	replaced := func(s string) string {
		for range 8 { // variables of variables
			next := reference.ReplaceAllStringFunc(s, func(m string) string {
				if v, ok := vars[reference.FindStringSubmatch(m)[1]]; ok {
					return v
				}
				return m
			})
			if next == s {
				break
			}
			s = next
		}
		return s
	}
	var b strings.Builder
	b.WriteString("{" + megatronArguments + ": {")
	seen := map[string]bool{}
	for _, line := range strings.Split(string(text), "\n") {
		if m := assignment.FindStringSubmatch(line); m != nil && !strings.Contains(line, "--") {
			vars[m[1]] = replaced(strings.Trim(m[2], `"'`))
			b.WriteString("\n")
			continue
		}
		words := strings.Fields(line)
		for i := 0; i < len(words) && !strings.HasPrefix(words[i], "#"); i++ {
			name, value, has := strings.Cut(words[i], "=")
			if at := strings.Index(name, "--"); at > 0 && strings.Trim(name[:at], `("'`+assigned) == "" {
				name = name[at:]
			}
			if !strings.HasPrefix(name, "--") || len(name) < 4 {
				continue
			}
			for !has && i+1 < len(words) && !strings.HasPrefix(words[i+1], "--") && !strings.ContainsAny(words[i+1], `\`) && !strings.HasPrefix(words[i+1], "#") && words[i+1] != ")" && words[i+1] != `"` {
				i++
				value = strings.TrimSpace(value + " " + words[i])
			}
			value = replaced(strings.Trim(value, `"')`))
			name = strings.Trim(name, `"')\`)
			if seen[name] {
				continue
			}
			seen[name] = true
			b.WriteString(strconv.Quote(name) + ": " + scalar(value) + ", ")
		}
		b.WriteString("\n")
	}
	return []byte(strings.TrimRight(b.String(), "\n") + "}}\n")
}

// assigned are characters before the first argument in a variable of a script.
const assigned = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789=+"

// scalar is a word of a script in YAML; an option without one is true.
func scalar(s string) string {
	if s == "" {
		return "true"
	}
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		return s
	}
	return strconv.Quote(s)
}
