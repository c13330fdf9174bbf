package requirement

import (
	"encoding/json"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strings"
)

var (
	tableRE  = regexp.MustCompile(`^\[+([^\]]+)\]+\s*(#.*)?$`)
	keyRE    = regexp.MustCompile(`^([\w-]+|"[^"]*")\s*=\s*(.*)$`)
	stringRE = regexp.MustCompile(`"([^"\\]*)"|'([^']*)'`)
	// requirementRE is PEP 508's NAME[EXTRAS] VERSIONS; MARKER of torch, or NAME @ URL.
	requirementRE = regexp.MustCompile(`(?i)^torch\s*(\[[^\]]*\])?\s*(@\s*[^;]*|\(?[<>=!~][^;#@)]*\)?)?\s*(?:;(.*))?$`)
	wheelRE       = regexp.MustCompile(`(?i)/torch-([\d.]+)[^/]*\.whl`)
	elsewhereRE   = regexp.MustCompile(`(?i)(sys_platform|platform_system)\s*==\s*\\?['"](darwin|win32|windows|macos)|(sys_platform|platform_system)\s*!=\s*\\?['"]linux|platform_machine\s*==\s*\\?['"](arm64|aarch64)`)
)

// elsewhere reports whether a marker is of systems without CUDA's wheels alone.
func elsewhere(marker string) bool {
	return elsewhereRE.MatchString(marker) && !strings.Contains(marker, " or ")
}

// lock reads the packages of a lock file in TOML, as its program writes it.
func lock(f *file) error {
	in, torch, skip := false, false, false
	line, version := 0, ""
	flush := func() error {
		if !torch || skip || version == "" {
			return nil
		}
		return f.ask(line, "torch "+version, "=="+version)
	}
	for i, l := range f.lines {
		l = strings.TrimSpace(l)
		if m := tableRE.FindStringSubmatch(l); m != nil {
			if strings.HasPrefix(m[1], "package.") || strings.HasPrefix(m[1], "packages.") {
				in = false // of the same package
				continue
			}
			if err := flush(); err != nil {
				return err
			}
			in, torch, skip, version = m[1] == "package" || m[1] == "packages", false, false, ""
			continue
		}
		m := keyRE.FindStringSubmatch(l)
		if !in || m == nil {
			if in && torch && elsewhere(l) && strings.HasPrefix(l, `"`) { // resolution-markers, in lines of their own
				skip = true
			}
			continue
		}
		switch value := strings.Trim(m[2], `"'`); m[1] {
		case "name":
			torch = value == "torch"
		case "version":
			line, version = i, value
		case "markers", "marker":
			skip = skip || elsewhere(m[2])
		}
	}
	if err := flush(); err != nil {
		return err
	}
	for _, a := range f.asked[min(1, len(f.asked)):] {
		if first := f.asked[0]; a.conditions[0].line() != first.conditions[0].line() {
			return &Error{a.Place, fmt.Sprintf("another release than line %d has; write the one that is meant, such as torch: 2.9", first.Line)}
		}
	}
	return nil
}

// pipfile reads Pipfile.lock.
func pipfile(f *file) error {
	var all map[string]json.RawMessage
	if err := json.Unmarshal([]byte(strings.Join(f.lines, "\n")), &all); err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	for _, section := range []string{"default", "develop"} {
		var packages map[string]struct{ Version, Markers string }
		if err := json.Unmarshal(all[section], &packages); err != nil && all[section] != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		p, ok := packages["torch"]
		if !ok || elsewhere(p.Markers) {
			continue
		}
		line := 0
		for i, l := range f.lines {
			if strings.HasPrefix(strings.TrimSpace(l), `"torch":`) {
				line = i
				break
			}
		}
		return f.ask(line, "torch"+p.Version, p.Version)
	}
	return nil
}

// requirement asks for what a requirement of torch says; others are left out.
func (f *file) requirement(i int, text string) error {
	m := requirementRE.FindStringSubmatch(text)
	if m == nil || elsewhere(m[3]) {
		return nil
	}
	version := strings.TrimSpace(m[2])
	if address, ok := strings.CutPrefix(version, "@"); ok {
		plain, err := url.PathUnescape(strings.TrimSpace(address))
		wheel := wheelRE.FindStringSubmatch(plain)
		if err != nil || wheel == nil {
			return &Error{Place{f.name, i + 1, text}, "the address does not say which release this is"}
		}
		version = "==" + strings.Trim(wheel[1], ".")
	}
	return f.ask(i, strings.TrimSpace(text), strings.Trim(version, "() "))
}

// requirements reads pip's files, with those that they include.
func requirements(f *file) error {
	if f.read++; f.read > maxFiles {
		return fmt.Errorf("%s: more than %d files are included", f.name, maxFiles)
	}
	name, lines := f.name, f.lines
	for i := 0; i < len(lines); i++ {
		at, l := i, strings.TrimRight(lines[i], "\r")
		for strings.HasSuffix(l, `\`) && i+1 < len(lines) {
			i++
			l = strings.TrimSuffix(l, `\`) + strings.TrimRight(lines[i], "\r")
		}
		if l = strings.TrimSpace(l); strings.HasPrefix(l, "#") {
			continue
		}
		l, _, _ = strings.Cut(l, " #")
		if words := strings.FieldsFunc(l, func(r rune) bool { return r == ' ' || r == '=' }); len(words) == 2 {
			switch words[0] {
			case "-r", "--requirement", "-c", "--constraint":
				other := path.Join(path.Dir(name), words[1])
				text, err := f.open(other)
				if err != nil {
					return &Error{Place{name, at + 1, l}, err.Error()}
				}
				f.name, f.lines = other, strings.Split(string(text), "\n")
				err = requirements(f)
				if f.name, f.lines = name, lines; err != nil {
					return err
				}
				continue
			}
		}
		l, _, _ = strings.Cut(l, " --") // hashes
		if err := f.requirement(at, strings.TrimSpace(l)); err != nil {
			return err
		}
	}
	return nil
}

// pyproject reads the requirements of a project: strings of lists, and poetry's keys.
func pyproject(f *file) error {
	table := ""
	for i, l := range f.lines {
		l = strings.TrimSpace(l)
		if strings.HasPrefix(l, "#") {
			continue
		}
		if m := tableRE.FindStringSubmatch(l); m != nil && !strings.Contains(l, `,`) {
			table = m[1]
			continue
		}
		m := keyRE.FindStringSubmatch(l)
		switch {
		case strings.HasPrefix(table, "tool.poetry") && strings.HasSuffix(table, "dependencies"):
			if m != nil && strings.Trim(m[1], `"`) == "torch" {
				if err := f.poetry(i, m[2]); err != nil {
					return err
				}
			}
		case table == "project" && m != nil && m[1] != "dependencies",
			table != "project" && table != "project.optional-dependencies" && table != "dependency-groups" && table != "tool.uv" && table != "tool.pdm.dev-dependencies":
		default:
			for _, q := range stringRE.FindAllStringSubmatch(l, -1) {
				if err := f.requirement(i, q[1]+q[2]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// poetry reads a dependency as poetry writes it: a string, or a table on one line.
func (f *file) poetry(i int, value string) error {
	version := ""
	if strings.HasPrefix(value, "{") {
		_, after, ok := strings.Cut(value, "version")
		if !ok {
			return &Error{Place{f.name, i + 1, "torch = " + value}, "no version"}
		}
		value = after
	}
	if q := stringRE.FindStringSubmatch(value); q != nil {
		version = q[1] + q[2]
	}
	if version != "*" && version != "" && strings.ContainsRune("0123456789", rune(version[0])) {
		version = "==" + version
	}
	return f.ask(i, "torch "+version, version)
}
