package trace

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// ReadError says what is wrong with a trace file, and where.
type ReadError struct {
	Line, Column int    // of the text at fault, from 1; the column counts bytes
	Event        int    // the event at fault, from 0; -1 outside "events"
	Message      string // what was found and what is allowed
}

// Error returns the message after its place.
func (e *ReadError) Error() string {
	if e.Event < 0 {
		return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Message)
	}
	return fmt.Sprintf("line %d, column %d: event %d: %s", e.Line, e.Column, e.Event, e.Message)
}

// maxDepth bounds the nesting of values that are skipped.
const maxDepth = 100

// scanner reads JSON from memory, value by value, so that every complaint has
// a position. Its first error sticks; after it every method returns a zero
// value at once.
type scanner struct {
	data  []byte
	pos   int
	event int // for errors
	err   *ReadError
}

// fail records an error at a byte offset.
func (s *scanner) fail(at int, format string, args ...any) {
	if s.err != nil {
		return
	}
	before := s.data[:min(at, len(s.data))]
	s.err = &ReadError{
		Line:    bytes.Count(before, []byte{'\n'}) + 1,
		Column:  len(before) - bytes.LastIndexByte(before, '\n'),
		Event:   s.event,
		Message: fmt.Sprintf(format, args...),
	}
}

// peek returns the first byte after white space, or 0 at the end.
func (s *scanner) peek() byte {
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; c {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return c
		}
	}
	return 0
}

// found describes what is at the current position.
func (s *scanner) found() string {
	if s.peek(); s.pos >= len(s.data) {
		return "the end of the file"
	}
	return strconv.QuoteToASCII(string(s.data[s.pos]))
}

// take consumes c if it is next.
func (s *scanner) take(c byte) bool {
	if s.err != nil || s.peek() != c || s.pos >= len(s.data) {
		return false
	}
	s.pos++
	return true
}

// expect consumes c or fails.
func (s *scanner) expect(c byte, where string) {
	if s.err == nil && !s.take(c) {
		s.fail(s.pos, `expected "%c" %s, found %s`, c, where, s.found())
	}
}

// more is the condition of a loop over the items of an array or object that
// ends in c: it consumes the end, or the comma before every item but the first.
func (s *scanner) more(first *bool, c byte, where string) bool {
	if s.err != nil {
		return false
	}
	if *first {
		*first = false
		return !s.take(c)
	}
	if s.take(c) {
		return false
	}
	if !s.take(',') {
		s.fail(s.pos, `expected "," or "%c" %s, found %s`, c, where, s.found())
	}
	return s.err == nil
}

// integer reads a whole number between low and high. what names it.
func (s *scanner) integer(what string, low, high int64) int64 {
	if s.err != nil {
		return 0
	}
	s.peek()
	at, negative := s.pos, false
	if s.pos < len(s.data) && s.data[s.pos] == '-' {
		negative = true
		s.pos++
	}
	digits := s.pos
	var v uint64
	overflow := false
	for ; s.pos < len(s.data) && '0' <= s.data[s.pos] && s.data[s.pos] <= '9'; s.pos++ {
		if v > (1<<63)/10 {
			overflow = true
		}
		v = v*10 + uint64(s.data[s.pos]-'0')
	}
	switch n := s.pos - digits; {
	case n == 0 || n > 1 && s.data[digits] == '0' || s.pos < len(s.data) && isNumberByte(s.data[s.pos]):
		s.pos = at
		s.fail(at, "%s is %s; allowed are whole numbers from %d to %d", what, s.text(), low, high)
		return 0
	case negative && v <= 1<<63:
		v = -v
	case negative || v > 1<<63-1:
		overflow = true
	}
	if n := int64(v); !overflow && low <= n && n <= high {
		return n
	}
	s.fail(at, "%s is %s; allowed are whole numbers from %d to %d", what, s.data[at:s.pos], low, high)
	return 0
}

func isNumberByte(c byte) bool {
	return '0' <= c && c <= '9' || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E'
}

// text returns what stands at the current position, for a message: the word up
// to the next mark or white space if that is short and printable, else only the
// first byte.
func (s *scanner) text() string {
	s.peek()
	rest := s.data[s.pos:min(s.pos+40, len(s.data))]
	n := bytes.IndexAny(rest, ",:[]{} \t\r\n")
	if n <= 0 {
		return s.found()
	}
	for _, c := range rest[:n] {
		if c < ' ' || c > '~' {
			return s.found()
		}
	}
	return string(rest[:n])
}

// number reads any JSON number.
func (s *scanner) number(what string) float64 {
	if s.err != nil {
		return 0
	}
	s.peek()
	at := s.pos
	for s.pos < len(s.data) && isNumberByte(s.data[s.pos]) {
		s.pos++
	}
	token := s.data[at:s.pos]
	v, err := strconv.ParseFloat(string(token), 64)
	if err != nil || !json.Valid(token) {
		s.pos = at
		s.fail(at, "%s is %s; allowed are numbers", what, s.text())
		return 0
	}
	return v
}

// string reads a JSON string.
func (s *scanner) string(what string) string {
	if s.err != nil {
		return ""
	}
	if s.peek() != '"' {
		s.fail(s.pos, "%s must be a string, found %s", what, s.found())
		return ""
	}
	at := s.pos
	for s.pos++; s.pos < len(s.data) && s.data[s.pos] != '"'; s.pos++ {
		if s.data[s.pos] == '\\' {
			s.pos++
		}
	}
	if s.pos >= len(s.data) {
		s.pos = len(s.data)
		s.fail(at, "%s is a string without end", what)
		return ""
	}
	s.pos++
	var v string
	if err := json.Unmarshal(s.data[at:s.pos], &v); err != nil {
		s.fail(at, "%s is no valid string: %v", what, err)
	}
	return v
}

// null consumes a null if it is next.
func (s *scanner) null() bool {
	if s.err == nil && s.peek() == 'n' && bytes.HasPrefix(s.data[s.pos:], []byte("null")) {
		s.pos += len("null")
		return true
	}
	return false
}

// strings reads an array of strings.
func (s *scanner) strings(what string) []string {
	list := []string{}
	s.expect('[', "before the list of "+what)
	for first := true; s.more(&first, ']', "in the list of "+what); {
		s.peek()
		at := s.pos
		name := s.string(what)
		if i := strings.IndexFunc(name, unicode.IsControl); i >= 0 {
			s.fail(at, "%s has a control character in %s; names are printed", what, strconv.QuoteToASCII(name))
		}
		list = append(list, name)
	}
	return list
}

// skip reads any value.
func (s *scanner) skip(depth int) {
	if s.err != nil {
		return
	}
	if depth > maxDepth {
		s.fail(s.pos, "values are nested more than %d deep", maxDepth)
		return
	}
	switch c := s.peek(); {
	case c == '"':
		s.string("a value")
	case c == '[':
		s.pos++
		for first := true; s.more(&first, ']', "in an array"); {
			s.skip(depth + 1)
		}
	case c == '{':
		s.pos++
		for first := true; s.more(&first, '}', "in an object"); {
			s.string("the name of a member")
			s.expect(':', "after the name of a member")
			s.skip(depth + 1)
		}
	case c == '-' || '0' <= c && c <= '9':
		s.number("a value")
	default:
		for _, word := range []string{"null", "true", "false"} {
			if bytes.HasPrefix(s.data[s.pos:], []byte(word)) {
				s.pos += len(word)
				return
			}
		}
		s.fail(s.pos, "expected a value, found %s", s.found())
	}
}
