// Package webpage writes reports and snapshots as one HTML page that needs no network: figures as text and
// tables, and charts of the allocator's events by Apache ECharts, which is in the page.
package webpage

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"html/template"
	"io"

	"github.com/memplan/memplan/internal/printable"
	"github.com/memplan/memplan/internal/tensor"
)

var (
	//go:embed page.tmpl
	pageTemplate string
	//go:embed page.css
	style string
	//go:embed page.js
	script string
	//go:embed echarts/echarts.min.js
	echarts string
)

var parsed = template.Must(template.New("page").Funcs(template.FuncMap{"text": printable.Text}).Parse(pageTemplate))

// Page is what a page shows.
type Page struct {
	Verdict string // a word: FITS, TIGHT, OOM; "" without one
	Title   string
	Lines   []string // below the title: the reason, the settings
	First   []Table  // above the charts
	Tables  []Table  // below them
	Lists   []List
	Data    any // the figures as JSON: a report, an explanation
	Memory  []Memory
}

// Table is figures.
type Table struct {
	Title string
	Head  []string
	Rows  [][]Cell
}

// Cell is a text, or a number that scripts can read.
type Cell struct {
	Text  string
	Name  string // of the number in the JSON: peak.allocated_bytes; "" of a text
	Value int64
}

// List is sentences.
type List struct {
	Title string
	Items []string
}

// Text is a cell of a text.
func Text(s string) Cell { return Cell{Text: s} }

// Size is a cell of a size, which has a name in the JSON.
func Size(name string, b tensor.Bytes) Cell { return Cell{b.String(), name, int64(b)} }

// Add adds a table below the charts, unless it is empty.
func (p *Page) Add(title string, head []string, rows ...[]Cell) {
	if len(rows) > 0 {
		p.Tables = append(p.Tables, Table{title, head, rows})
	}
}

// List adds sentences, if there are any.
func (p *Page) List(title string, items []string) {
	if len(items) > 0 {
		p.Lists = append(p.Lists, List{title, items})
	}
}

// How large a page may be, in bytes, and how many events it has at the most, of all its memory.
const (
	maxPage   = 3_000_000
	maxEvents = 400_000
	minEvents = 1000
)

// Write writes the page. Events are left out that would make it too large.
func Write(w io.Writer, p *Page) error {
	all := []*columns{}
	for i := range p.Memory {
		c, err := p.Memory[i].columns()
		if err != nil {
			return err
		}
		all = append(all, c)
	}
	for most := maxEvents; ; most /= 2 {
		for _, c := range all {
			c.thin(most / len(all))
		}
		packed, err := pack(all)
		if err != nil {
			return err
		}
		if most > minEvents && len(packed)+len(echarts) > maxPage {
			continue
		}
		var page bytes.Buffer
		err = parsed.Execute(&page, map[string]any{
			"Page": p, "Memory": template.HTML(packed), //nolint:gosec // base64
			"Style": template.CSS(style), "Script": template.JS(script), "ECharts": template.JS(echarts), //nolint:gosec // our own files
		})
		if err != nil {
			return err
		}
		if most <= minEvents || page.Len() <= maxPage {
			_, err = page.WriteTo(w)
			return err
		}
	}
}

// pack compresses a value's JSON; it is base64.
func pack(v any) (string, error) {
	var out bytes.Buffer
	b := base64.NewEncoder(base64.StdEncoding, &out)
	z := gzip.NewWriter(b)
	if err := json.NewEncoder(z).Encode(v); err != nil {
		return "", err
	}
	if err := z.Close(); err != nil {
		return "", err
	}
	err := b.Close()
	return out.String(), err
}
