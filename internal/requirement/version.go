package requirement

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/memplan/memplan/internal/torchver"
)

// condition is a clause of a version specifier, such as >=2.6.
type condition struct {
	sign   string
	n      []int
	prefix bool // ends with .*
}

var (
	clauseRE  = regexp.MustCompile(`^(===|==|~=|!=|<=|>=|<|>|\^|~)?\s*v?(\d+(?:\.\d+)*)(\.\*)?((?:a|b|rc|\.?dev|\.?post)\d*)?(\+[\w.]+)?$`)
	partsOfIt = regexp.MustCompile(`\s*,\s*`)
)

// parseConditions reads a version specifier; poetry's ^ and ~ too. "" and "*" allow all.
func parseConditions(text string) ([]condition, error) {
	text = strings.TrimSpace(text)
	if text == "" || text == "*" {
		return nil, nil
	}
	var out []condition
	for _, part := range partsOfIt.Split(text, -1) {
		m := clauseRE.FindStringSubmatch(strings.TrimSpace(part))
		if m == nil {
			return nil, fmt.Errorf(`%q is not a condition on versions, such as ==2.9.1 or >=2.6,<2.10`, part)
		}
		c := condition{sign: m[1], prefix: m[3] != ""}
		for _, d := range strings.Split(m[2], ".") {
			n, err := strconv.Atoi(d)
			if err != nil || n > 1<<15 {
				return nil, fmt.Errorf("%q is not a version", part)
			}
			c.n = append(c.n, n)
		}
		if c.sign == "" { // of a lock file, or poetry's "2.6"
			c.sign = "=="
		}
		out = append(out, c)
	}
	return out, nil
}

// line is the release line of the condition's version.
func (c condition) line() torchver.Version {
	w := torchver.Version{Major: c.n[0]}
	if len(c.n) > 1 {
		w.Minor = c.n[1]
	}
	return w
}

// allows reports whether a release line has a release that the condition allows. Each is taken to
// have patch releases, where the condition asks for one by its number.
func (c condition) allows(v torchver.Version) bool {
	w, patch := c.line(), 0
	if len(c.n) > 2 {
		patch = c.n[2]
	}
	line := v == w
	if len(c.n) == 1 {
		line = v.Major == w.Major
	}
	switch c.sign {
	case "==", "===":
		if c.prefix || len(c.n) > 1 {
			return line
		}
		return v == w // 2 is 2.0
	case "!=":
		return !c.prefix || !line
	case ">=":
		return v.AtLeast(w)
	case ">":
		return v.AtLeast(w) && (v != w || patch > 0)
	case "<=":
		return w.AtLeast(v)
	case "<":
		return w.AtLeast(v) && (v != w || patch > 0)
	case "^":
		return v.AtLeast(w) && v.Major == w.Major
	}
	// ~=2.6 allows 2.7, ~=2.6.0 does not; poetry's ~2.6 does not either.
	if c.sign == "~=" && len(c.n) < 3 || len(c.n) == 1 {
		return v.AtLeast(w) && v.Major == w.Major
	}
	return v == w
}
