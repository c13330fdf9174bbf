// Package docs holds the reference of the spec language, docs/language.md,
// docs/peft.md and docs/operators.md, and finds in it what memplan explain is asked
// for.
//
// A topic is a section of a page, named by its heading: the names in backticks
// in front of a colon (### `if`, `for`, `repeat`: which entries run), or else the
// heading itself. An item of a list that begins with a name in backticks is a
// topic, too: a key, or a function.
package docs

import (
	_ "embed" // for the pages
	"regexp"
	"slices"
	"strings"
)

// Language is the page.
//
//go:embed language.md
var Language string

// Operators is the page of all signatures.
//
//go:embed operators.md
var Operators string

// PEFT is the page of the section peft.
//
//go:embed peft.md
var PEFT string

// Topic is a part of a page.
type Topic struct {
	Name  string // what it is asked for by
	Title string // the heading of the section that it is or lies in
	Text  string // Markdown, without that heading
	Item  bool   // it is an item of a list in the section
}

var (
	headingRE = regexp.MustCompile(`^##+ (.*)$`)
	quotedRE  = regexp.MustCompile("`([^`]+)`")
	itemRE    = regexp.MustCompile("^- `([A-Za-z_][\\w.]*)[^`]*`")
	hiddenRE  = regexp.MustCompile(`^<!--.*-->$`)
)

// Topics returns the topics of the pages in their order. A key is also found as
// section.key.
func Topics() []Topic {
	return slices.Concat(topicsOf(Language), topicsOf(PEFT), topicsOf(Operators))
}

func topicsOf(page string) []Topic {
	var out []Topic
	var title string
	var names []string
	var body []string
	flush := func() {
		text := strings.Trim(strings.Join(body, "\n"), "\n")
		if title != "" && text != "" {
			for _, n := range names {
				out = append(out, Topic{Name: n, Title: title, Text: text})
			}
			out = append(out, items(title, names, body)...)
		}
		body = nil
	}
	code := false
	for line := range strings.Lines(page) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "```") {
			code = !code
		}
		if m := headingRE.FindStringSubmatch(line); m != nil && !code {
			flush()
			title, names = m[1], namesOf(m[1])
			continue
		}
		if code || !hiddenRE.MatchString(line) {
			body = append(body, line)
		}
	}
	flush()
	return out
}

// namesOf are the names of a heading.
func namesOf(heading string) []string {
	front, _, _ := strings.Cut(heading, ":")
	var out []string
	for _, m := range quotedRE.FindAllStringSubmatch(front, -1) {
		out = append(out, m[1])
	}
	if out == nil {
		out = []string{strings.ToLower(front)}
	}
	return out
}

// items are the topics in the lists of a section.
func items(title string, names, body []string) []Topic {
	var out []Topic
	code := false
	for i, line := range body {
		if strings.HasPrefix(line, "```") {
			code = !code
		}
		m := itemRE.FindStringSubmatch(line)
		if code || m == nil {
			continue
		}
		text := []string{line}
		for _, l := range body[i+1:] {
			if !strings.HasPrefix(l, "  ") {
				break
			}
			text = append(text, l)
		}
		item := Topic{Name: m[1], Title: title, Text: strings.Join(text, "\n"), Item: true}
		out = append(out, item)
		if len(names) == 1 && !strings.Contains(names[0], " ") {
			item.Name = names[0] + "." + m[1]
			out = append(out, item)
		}
	}
	return out
}

// Names returns the names of all topics, sorted.
func Names() []string {
	var out []string
	for _, t := range Topics() {
		out = append(out, t.Name)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// About returns the topics of a name: sections first, then items of others.
func About(name string) []Topic {
	var sections, others []Topic
	for _, t := range Topics() {
		switch {
		case t.Name != name:
		case t.Item:
			others = append(others, t)
		default:
			sections = append(sections, t)
		}
	}
	return append(sections, others...)
}
