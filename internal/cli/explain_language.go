package cli

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/memplan/memplan/docs"
	"github.com/memplan/memplan/internal/report"
)

// explainLanguage prints what the reference of the language says of a topic.
func explainLanguage(name string, width int) (string, any) {
	var b strings.Builder
	var data []topicDatum
	for i, t := range docs.About(name) {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "language %s\n", strings.ReplaceAll(t.Title, "`", ""))
		writeMarkdown(&b, width, t.Text)
		data = append(data, topicDatum{Topic: name, Title: t.Title, Text: t.Text})
	}
	return b.String(), data
}

var linkRE = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)

// writeMarkdown prints a section for a terminal: paragraphs and items in lines of
// that width, code as it stands.
func writeMarkdown(b *strings.Builder, width int, text string) {
	code := false
	var words []string
	flush := func() {
		if words == nil {
			return
		}
		joined := linkRE.ReplaceAllString(strings.Join(words, " "), "$1")
		for i, line := range report.Wrap(joined, width-4) {
			if i > 0 && strings.HasPrefix(joined, "- ") {
				line = "  " + line
			}
			b.WriteString("  " + line + "\n")
		}
		words = nil
	}
	for _, line := range strings.Split(text, "\n") {
		switch {
		case strings.HasPrefix(line, "```"):
			flush()
			code = !code
		case line == "":
			flush()
			b.WriteString("\n")
		case code:
			b.WriteString("      " + line + "\n")
		default:
			if strings.HasPrefix(line, "- ") {
				flush()
			}
			words = append(words, line)
		}
	}
	flush()
}
