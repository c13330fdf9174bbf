package hf

import (
	"bytes"
	"slices"
	"strings"

	"github.com/memplan/memplan/internal/spec"
)

// shared are the files of blocks that types have in common; hf/heads has those of
// tasks, hf/vision those of images and sound, hf/flash, hf/kernels, hf/liger and hf/cce those of other libraries, hf/mixers the layers that call them.
var shared = []string{"hf/common", "hf/heads", "hf/vision", "hf/mixers", "hf/flash", "hf/kernels", "hf/liger", "hf/cce"}

// share adds to a preset, which may be that of another and have blocks of more, the blocks of
// those shared files that they need: to read one takes as long as to read the preset.
func (h *model) share(s, outer *spec.Spec) {
	files := []*spec.Spec{s, outer}
	for _, b := range s.Model.Blocks {
		if b.V.Of != nil && !slices.Contains(files, b.V.Of) {
			files = append(files, b.V.Of)
		}
	}
	texts := make([][]byte, len(shared))
	for i, name := range shared {
		text, err := h.Preset(name)
		if err != nil {
			h.fail(Named(h.m).At, "%v", err)
		}
		texts[i] = text
	}
	all := h.Spec.PEFT.Prompts() != nil // what stands around the model names blocks, too
	for i, needed := range needed(texts, files) {
		if needed || all {
			s.Share(h.read(h.m, shared[i], texts[i], nil))
		}
	}
}

// needed says of which shared files others, or shared files that these need, name a block.
func needed(texts [][]byte, others []*spec.Spec) []bool {
	m := mentions{}
	for _, s := range others {
		m.add(s.Errs.Lines)
	}
	out := make([]bool, len(texts))
	for found := true; found; {
		found = false
		for i, text := range texts {
			if !out[i] && slices.ContainsFunc(blockNames(text), m.of) {
				out[i], found = true, true
				m.add(strings.Split(string(text), "\n"))
			}
		}
	}
	return out
}

// blockNames lists the blocks of a shared file, each of which begins a line, indented by
// four spaces, after that of their key.
func blockNames(text []byte) (names []string) {
	_, blocks, _ := bytes.Cut(text, []byte("\n  blocks:\n"))
	for line := range bytes.Lines(blocks) {
		if name, _, ok := bytes.Cut(line, []byte(":")); ok && len(name) > 4 && bytes.HasPrefix(name, []byte("    ")) && isWord(name[4]) {
			names = append(names, string(name[4:]))
		}
	}
	return names
}

// mentions are the words of files; what a word ends or begins that a template is part of
// is kept with the template's brace.
type mentions map[string]bool

// add takes the words of the lines of a file.
func (m mentions) add(lines []string) {
	for _, line := range lines {
		for i := 0; i < len(line); i++ {
			if !isWord(line[i]) {
				continue
			}
			from := i
			for i < len(line) && isWord(line[i]) {
				i++
			}
			m[line[from:i]] = true
			if from > 0 && line[from-1] == '}' {
				m[line[from-1:i]] = true
			}
			if strings.HasPrefix(line[i:], "${") {
				m[line[from:i+1]] = true
			}
		}
	}
}

// of reports whether a name is among the words, or may be one of which templates are a part.
func (m mentions) of(name string) bool {
	if m[name] {
		return true
	}
	for i := range len(name) {
		if m["}"+name[i:]] || m[name[:i]+"$"] {
			return true
		}
	}
	return false
}

// isWord reports what names of blocks are written with.
func isWord(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
