package hub

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"sync"

	"github.com/memplan/memplan/internal/files"
	"github.com/memplan/memplan/internal/nearest"
)

// Hub finds configurations. A nil Hub has the table alone.
type Hub struct {
	// Given is a file that has the configuration of every model that is named; "": none.
	Given string
	// Cache is the folder in which Hugging Face's libraries keep what they download; "": none.
	Cache string
	// Download reads from the hub; nil: memplan does not.
	Download *Client

	mu    sync.Mutex
	found map[string]*Configuration // what was found, by name
	given string                    // the model that Given is for
}

// Configuration is a config.json and where it comes from.
type Configuration struct {
	Name string
	Text []byte
	From string // for people: the table and its source, a path, an address
}

// name is how the hub names models: OWNER/NAME.
var name = regexp.MustCompile(`^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$`)

// IsName reports whether a text names a model of the hub, rather than a file: OWNER/NAME, or
// a name of the table without an owner.
func IsName(s string) bool {
	switch path.Ext(s) {
	case ".yaml", ".yml", ".json", ".py", ".log", ".txt":
		return false
	}
	return name.MatchString(s) && !strings.Contains(s, "..") || Lookup(s) != nil
}

// Gives reports whether a file is given for the models that are named.
func (h *Hub) Gives() bool { return h != nil && h.Given != "" }

// Find returns the configuration of a model: what is given, what the cache has, what the table
// has, and what the hub has, in this order.
func (h *Hub) Find(name string) (*Configuration, error) {
	if h == nil {
		return find(name, tabulated)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.found[name]; c != nil {
		return c, nil
	}
	c, err := find(name, h.fromFile, h.cached, tabulated, h.download)
	if err == nil {
		if h.found == nil {
			h.found = map[string]*Configuration{}
		}
		h.found[name] = c
	}
	return c, err
}

// Has reports whether Find finds a model, without the network.
func (h *Hub) Has(name string) bool {
	if !IsName(name) {
		return false
	}
	if h == nil {
		return Lookup(name) != nil
	}
	if h.Gives() || h.Download != nil || Lookup(name) != nil {
		return true
	}
	c, err := h.cached(name)
	return c != nil && err == nil
}

// find asks one source after another; each returns nil if it has no such model.
func find(name string, sources ...func(name string) (*Configuration, error)) (*Configuration, error) {
	for _, source := range sources {
		if c, err := source(name); c != nil || err != nil {
			return c, err
		}
	}
	return nil, &UnknownError{name}
}

// fromFile reads the file that is given.
func (h *Hub) fromFile(name string) (*Configuration, error) {
	if h.Given == "" {
		return nil, nil
	}
	if h.given != "" && h.given != name {
		return nil, fmt.Errorf("--model-config gives the configuration of one model; two are named: %s and %s", h.given, name)
	}
	h.given = name
	text, err := files.ReadNamed(h.Given, files.MaxText)
	if err != nil {
		return nil, fmt.Errorf("--model-config: %w", err)
	}
	return &Configuration{name, text, h.Given}, nil
}

// tabulated looks in the table.
func tabulated(name string) (*Configuration, error) {
	m := Lookup(name)
	if m == nil {
		return nil, nil
	}
	return &Configuration{name, m.Config, "table (" + m.From() + ")"}, nil
}

func (h *Hub) download(name string) (*Configuration, error) {
	if h.Download == nil {
		return nil, nil
	}
	return h.Download.config(name)
}

// UnknownError says that a model is not known.
type UnknownError struct{ Name string }

func (e *UnknownError) Error() string {
	mean := ""
	if t := TypeOf(e.Name); t != "" {
		mean = ", whose model_type is " + t
	} else if n := nearest.To(e.Name, Names()); n != "" {
		mean = fmt.Sprintf("; did you mean %s?", n)
	}
	return fmt.Sprintf("there is no file %q, and memplan has no configuration of such a model%s (memplan list models); "+
		"its config.json may be given by --model-config FILE, be in the cache of Hugging Face (hf download %s config.json), or be downloaded by --download",
		e.Name, mean, e.Name)
}

// Is makes the error that of a file that is not there.
func (e *UnknownError) Is(err error) bool { return errors.Is(err, fs.ErrNotExist) }
