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

// mostProcesses is the largest number of nodes, and of processes of one, that is read.
const mostProcesses = 1 << 20

// megatron writes the arguments.
func (j *job) megatron() {
	args := j.get(megatronArguments)
	if args == nil || args.Kind != spec.Map {
		j.fail(j.doc.Root, "%s is a mapping of arguments such as --num-layers: 24", megatronArguments)
	}
	j.out.put("model.preset", spec.MegatronPreset, j.from(args))
	world := j.opts.Processes
	per, nodes := int64(0), int64(0)
	for _, p := range args.Pairs {
		name := strings.ReplaceAll(strings.TrimLeft(p.Key.Str, "-"), "-", "_")
		row := trainer.Megatron.Find(name, "")
		switch {
		case slices.Contains(ofTorchrun, name):
			if name != "nproc_per_node" && name != "nnodes" || world > 0 {
				break
			}
			n, err := strconv.ParseInt(p.Value.Str, 10, 64)
			if err != nil || n < 1 || n > mostProcesses {
				j.fail(p.Value, "%s is a number of at most %d, not %s; --num-processes says on how many GPUs the job runs", p.Key.Str, mostProcesses, p.Value.Describe())
			}
			if name == "nnodes" {
				nodes = n
			} else {
				per = n
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
	if world == 0 && per+nodes > 0 { // each is 1 where only the other is given
		world = max(per, 1) * max(nodes, 1)
	}
	if world > 0 {
		j.put("trainer.megatron.world_size", strconv.FormatInt(world, 10), nil)
	}
	if j.out.get("trainer.megatron") == nil {
		j.put("trainer.megatron", "{}", nil)
	}
}

// comment is the rest of a line that neither a shell nor YAML reads; specLine is one of specs
// alone.
var (
	comment  = regexp.MustCompile(`(?m)(^|\s)#.*$`)
	specLine = regexp.MustCompile(`(?m)^memplan:`)
)

// isMegatronScript reports whether a text is a shell script that gives pretrain_gpt.py its
// arguments.
func isMegatronScript(text []byte) bool {
	s := comment.ReplaceAllString(string(text), "$1")
	return !specLine.MatchString(s) && !strings.Contains(s, megatronArguments+":") && strings.Contains(s, "--num-layers") && strings.Contains(s, "--hidden-size") && strings.Contains(s, "--num-attention-heads")
}

// assignment is a variable that a line of a script sets, to what is read or to anything else;
// reference is where one is read, with what stands for it where it is not set.
var (
	assignment = regexp.MustCompile(`^\s*(?:export\s+)?([A-Za-z_]\w*)=("[^"]*"|'[^']*'|[^\s(;]*)\s*(?:#.*)?$`)
	reference  = regexp.MustCompile(`\$(?:\{(\w+)(?::-([^}]*))?\}|(\w+))`)
	unread     = regexp.MustCompile(`^\s*(?:export\s+)?([A-Za-z_]\w*)=\S`)
)

// ofNext is a word that is no value of the option before it: a program, an operator of the
// shell, an array of further arguments.
var ofNext = regexp.MustCompile(`^(?:--|#|\\|[)"']$|\)|\d*[<>]|[;|&]|["']?\$\{?\w*(?:\[[@*]\]|[@*])|.*\.py["']?$)`)

// ofShell is an operator that begins another command.
var ofShell = regexp.MustCompile(`^[;|&]|;$`)

// argument is one of a script.
type argument struct{ name, value string }

// megatronScript writes the arguments in a shell script as YAML with the same lines: what
// begins with two dashes, and the words after it that are its own. Of an argument that is
// repeated the last counts, as argparse has it. Variables are what the script sets last before.
func megatronScript(text []byte) []byte {
	vars := map[string]string{}
	replaced := func(s string) string {
		for range 8 { // variables of variables
			next := reference.ReplaceAllStringFunc(s, func(m string) string {
				of := reference.FindStringSubmatch(m)
				if v, ok := vars[of[1]+of[3]]; ok && (v != "" || of[2] == "") {
					return v
				}
				if strings.Contains(m, ":-") {
					return of[2]
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
	var lines [][]argument
	last := map[string]int{} // the line of an argument
	for n, line := range strings.Split(string(text), "\n") {
		lines = append(lines, nil)
		if !strings.Contains(line, "--") {
			if m := assignment.FindStringSubmatch(line); m != nil {
				vars[m[1]] = replaced(strings.Trim(m[2], `"'`))
				continue
			}
			if m := unread.FindStringSubmatch(line); m != nil {
				delete(vars, m[1])
			}
		}
		for _, a := range megatronWords(strings.Fields(line)) {
			key := strings.ReplaceAll(a.name, "_", "-")
			if k, again := last[key]; again {
				lines[k] = slices.DeleteFunc(lines[k], func(was argument) bool { return strings.ReplaceAll(was.name, "_", "-") == key })
			}
			last[key] = n
			lines[n] = append(lines[n], argument{a.name, replaced(a.value)})
		}
	}
	var b strings.Builder
	b.WriteString("{" + megatronArguments + ": {")
	for _, line := range lines {
		for _, a := range line {
			b.WriteString(strconv.Quote(a.name) + ": " + scalar(a.value) + ", ")
		}
		b.WriteString("\n")
	}
	return []byte(strings.TrimRight(b.String(), "\n") + "}}\n")
}

// megatronWords are the arguments in the words of a line, up to the command after theirs.
func megatronWords(words []string) []argument {
	var out []argument
	for i := 0; i < len(words) && !strings.HasPrefix(words[i], "#"); i++ {
		if len(out) > 0 && ofShell.MatchString(words[i]) && !strings.HasPrefix(words[i], "--") {
			break
		}
		name, value, _ := strings.Cut(words[i], "=")
		if at := strings.Index(name, "--"); at > 0 && strings.Trim(name[:at], `("'`+assigned) == "" {
			name = name[at:]
		} else if at := strings.Index(words[i], "=--"); at > 0 || strings.Contains(words[i], `="--`) || strings.Contains(words[i], `='--`) || strings.Contains(words[i], "=(--") {
			name, value, _ = strings.Cut(words[i][strings.Index(words[i], "--"):], "=")
		}
		if !strings.HasPrefix(name, "--") || len(name) < 4 {
			continue
		}
		ended := strings.HasSuffix(words[i], ";")
		name = strings.Trim(name, `"')\;`)
		if value == "" {
			for most := wordsOf(name); most > 0 && !ended && i+1 < len(words) && !ofNext.MatchString(words[i+1]); most-- {
				i++
				value = strings.TrimSpace(value + " " + words[i])
				ended = strings.HasSuffix(words[i], ";")
			}
		}
		out = append(out, argument{name, strings.Trim(value, `"');`)})
		if ended {
			break
		}
	}
	return out
}

// wordsOf is how many words an option has at most.
func wordsOf(option string) int {
	name := strings.ReplaceAll(strings.TrimLeft(option, "-"), "-", "_")
	switch row := trainer.Megatron.Find(name, ""); {
	case name == "standalone" || row != nil && row.Form == trainer.Bool:
		return 0
	case slices.Contains(ofTorchrun, name) || row != nil && row.Form != trainer.Any:
		return 1
	}
	return 1 << 10 // lists
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
