package main

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// printChanges prints what CHANGELOG.md says of a version, to be the text of its release.
func printChanges(to io.Writer, version string) error {
	text, err := os.ReadFile("CHANGELOG.md")
	if err != nil {
		return err
	}
	section, err := changes(string(text), strings.TrimPrefix(version, "v"))
	if err != nil {
		return err
	}
	_, err = io.WriteString(to, section)
	return err
}

// changes is the section of a version, under "## 1.2.3" or "## 1.2.3 (2026-01-02)".
func changes(text, version string) (string, error) {
	for _, section := range strings.Split(text, "\n## ")[1:] {
		heading, rest, _ := strings.Cut(section, "\n")
		if name, _, _ := strings.Cut(heading, " "); name == version {
			return strings.TrimSpace(rest) + "\n", nil
		}
	}
	return "", fmt.Errorf("CHANGELOG.md has no section ## %s", version)
}
