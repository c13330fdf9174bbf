package allocsim

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/memplan/memplan/internal/nearest"
	"github.com/memplan/memplan/internal/torchver"
)

// ConfigError says what is wrong with a PYTORCH_CUDA_ALLOC_CONF string, and
// where.
type ConfigError struct {
	Option  string // the option at fault; "" if its name is missing
	Offset  int    // of the text at fault, in bytes from the start of the string
	Length  int    // of the text at fault, in bytes; 0 where something is missing
	Message string // what was found and what is allowed
}

// Error returns the message with its column, counted from 1.
func (e *ConfigError) Error() string {
	return fmt.Sprintf("allocator config, column %d: %s", e.Offset+1, e.Message)
}

// ParseConfig reads a string in the syntax of PYTORCH_CUDA_ALLOC_CONF, such as
// "max_split_size_mb:128,roundup_power2_divisions:[256:1,512:2,>:4]", as
// PyTorch v does: spaces are ignored, a comma may follow the last option, and
// the last of several settings of one option holds. Options that v has and
// that do not matter here are checked and listed in Config.NotModelled.
//
// It is stricter than PyTorch in one point: PyTorch reads the longest prefix of
// a value that is a number ("128MB" as 128, "-1" as 2^64-1), which is never what
// was meant; here that is an error. The error is a *ConfigError.
func ParseConfig(conf string, v torchver.Version) (Config, error) {
	p := &parser{text: conf, tokens: lex(conf), version: v}
	var c Config
	for p.err == nil && p.pos < len(p.tokens) {
		p.option(&c)
	}
	p.finish(&c)
	if p.err != nil {
		return Config{}, p.err
	}
	return c, nil
}

// token is a word or one of the marks , : [ ]. PyTorch drops spaces even inside
// words.
type token struct {
	text  string // without spaces
	raw   string // as written
	start int    // offset in the string
}

// String returns the token as messages show it.
func (t token) String() string {
	if t.text == "" {
		return "the end"
	}
	return strconv.Quote(t.raw)
}

func (t token) isMark() bool { return len(t.text) == 1 && strings.Contains(",:[]", t.text) }

func lex(s string) []token {
	var tokens []token
	for i := 0; i < len(s); {
		switch s[i] {
		case ' ':
			i++
		case ',', ':', '[', ']':
			tokens = append(tokens, token{s[i : i+1], s[i : i+1], i})
			i++
		default:
			n := strings.IndexAny(s[i:], ",:[]")
			if n < 0 {
				n = len(s) - i
			}
			word := strings.TrimRight(s[i:i+n], " ")
			tokens = append(tokens, token{strings.ReplaceAll(word, " ", ""), word, i})
			i += n
		}
	}
	return tokens
}

// parser walks the tokens. Its first error sticks; after it every method
// returns a zero value and moves no further.
type parser struct {
	text    string
	tokens  []token
	pos     int
	version torchver.Version
	name    string // the option being read
	err     *ConfigError

	splitSizes []splitSize
}

// fail records an error about token t.
func (p *parser) fail(t token, format string, args ...any) {
	if p.err == nil {
		p.err = &ConfigError{p.name, t.start, len(t.raw), fmt.Sprintf(format, args...)}
	}
}

// peek returns the next token; at the end an empty one just after the text.
func (p *parser) peek() token {
	if p.pos < len(p.tokens) {
		return p.tokens[p.pos]
	}
	return token{start: len(p.text)}
}

func (p *parser) next() token {
	t := p.peek()
	if p.pos < len(p.tokens) {
		p.pos++
	}
	return t
}

// mark consumes one of the marks.
func (p *parser) mark(want string) {
	if p.err != nil {
		return
	}
	if t := p.next(); t.text != want {
		p.fail(t, "%s: expected %q, found %s", p.name, want, t)
	}
}

// word consumes a value; want describes it.
func (p *parser) word(want string) token {
	t := p.next()
	if t.text == "" || t.isMark() {
		p.fail(t, "%s: expected %s, found %s", p.name, want, t)
	}
	return t
}

// option reads one "name:value" and the comma after it.
func (p *parser) option(c *Config) {
	p.name = ""
	t := p.next()
	if t.isMark() {
		p.fail(t, "expected the name of an option, found %s", t)
		return
	}
	p.name = t.text
	for _, o := range options {
		if o.name != t.text && (o.alias == "" || o.alias != t.text) {
			continue
		}
		if since, source := torchver.AllocatorOptionSince(o.name); !p.version.AtLeast(since) {
			p.fail(t, "option %s came with PyTorch %s (%s); this is %s", o.name, since, source, p.version)
			return
		}
		p.mark(":")
		o.value(p, c)
		if p.err == nil && o.notModelled {
			c.NotModelled = append(c.NotModelled, t.text)
		}
		if p.pos < len(p.tokens) {
			p.mark(",")
		}
		return
	}
	names := p.knownNames()
	hint := ""
	if near := nearest.To(strings.Split(t.text, "=")[0], names); near != "" {
		hint = fmt.Sprintf(" (did you mean %s?)", near)
	}
	p.fail(t, "unknown option %s%s; allowed are %s", t, hint, strings.Join(names, ", "))
}

// knownNames lists the options that the version has.
func (p *parser) knownNames() []string {
	var names []string
	for _, o := range options {
		if since, _ := torchver.AllocatorOptionSince(o.name); p.version.AtLeast(since) {
			names = append(names, o.name)
		}
	}
	return names
}
