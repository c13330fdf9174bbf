package webpage

import (
	"bytes"
	_ "embed"
	"fmt"
	"html"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-analyze/charts/chartdraw"

	"github.com/memplan/memplan/internal/printable"
	"github.com/memplan/memplan/internal/tensor"
)

// The sizes of a picture, in pixels: as wide as a comment on GitHub.
const (
	pictureWidth = 830
	panelHeight  = 330
	legendWidth  = 205
	lineHeight   = 20
	pictureParts = 180 // of the events; each is a few pixels wide
	maxPanels    = 4

	maxPicture = 100 << 10 // bytes
)

//go:embed picture.css
var pictureStyle string

// WriteSVG draws a page's memory over its events, for where no script runs: stacked by category, with what is
// usable, the peak and the request that fails.
func WriteSVG(w io.Writer, p *Page) error {
	for parts := pictureParts; ; parts /= 2 {
		var b bytes.Buffer
		if err := writeSVG(&b, p, parts); err != nil {
			return err
		}
		if b.Len() <= maxPicture || parts == 1 {
			_, err := b.WriteTo(w)
			return err
		}
	}
}

// writeSVG draws so many parts of the events.
func writeSVG(w io.Writer, p *Page, parts int) error {
	var panels []panel
	more := 0
	for i := range p.Memory {
		m := &p.Memory[i]
		if len(m.Device.Events) == 0 || m.Again {
			continue
		}
		if len(panels) == maxPanels {
			more++
			continue
		}
		c, err := m.columns()
		if err != nil {
			return err
		}
		if len(c.Kinds) > 0 {
			panels = append(panels, panel{c, c.series(parts)})
		}
	}
	if len(panels) == 0 {
		return ErrNoEvents
	}
	var body bytes.Buffer
	y := lineHeight + 8
	line := func(class, s string) {
		fmt.Fprintf(&body, `<text class="%s" x="16" y="%d">%s</text>`+"\n", class, y, s)
		y += lineHeight
	}
	title := strings.TrimSpace(p.Verdict + "  " + printable.Text(p.Title))
	line("title", html.EscapeString(shortened(title, 100)))
	said := figures(p, line)
	for i := range panels {
		x := &panels[i]
		if len(panels) > 1 {
			y += 6
			line("name", html.EscapeString(x.c.Name))
		}
		said = append(said, x.words()...)
		var chart bytes.Buffer
		if err := x.draw(&chart); err != nil {
			return err
		}
		_, drawn, _ := strings.Cut(chart.String(), ">") // its own <svg> has no place
		fmt.Fprintf(&body, `<svg y="%d" width="%d" height="%d">%s`+"\n", y-12, pictureWidth, panelHeight, drawn)
		y += panelHeight
	}
	if more > 0 {
		line("soft", fmt.Sprintf("and %d more", more))
	}
	height := y - 14
	_, err := fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d" role="img" aria-labelledby="title desc">
<title id="title">%[3]s</title>
<desc id="desc">%[4]s</desc>
<style>%[5]s</style>
<rect class="back" x="0.5" y="0.5" width="%[6]d" height="%[7]d" rx="6"/>
%[8]s</svg>
`, pictureWidth, height, html.EscapeString(title), html.EscapeString(printable.Text(strings.Join(said, " "))), pictureStyle, pictureWidth-1, height-1, body.String())
	return err
}

// figures draws the figures above the charts of a page in a line for each row of several numbers, or all in one; it
// returns the sentences that say them.
func figures(p *Page, line func(class, s string)) []string {
	var said, together []string
	for _, t := range p.First {
		for _, row := range t.Rows {
			var shown, words []string
			for i, cell := range row {
				if cell.Name == "" {
					continue
				}
				head := ""
				if len(t.Head) > 3 {
					head = t.Head[i] + " "
				}
				shown = append(shown, fmt.Sprintf(`%s<tspan class="figure" data-name="%s" data-value="%d">%s</tspan>`, head, cell.Name, cell.Value, cell.Text))
				words = append(words, head+cell.Text)
			}
			name := printable.Text(row[0].Text)
			if len(shown) > 1 {
				line("soft", html.EscapeString(name)+": "+strings.Join(shown, ", "))
			} else {
				together = append(together, html.EscapeString(name)+" "+strings.Join(shown, ""))
			}
			said = append(said, fmt.Sprintf("%s: %s %s.", t.Title, name, strings.Join(words, ", ")))
		}
		if len(together) > 0 {
			line("soft", html.EscapeString(t.Title)+": "+strings.Join(together, " · "))
			together = nil
		}
	}
	return said
}

// shortened is the beginning of a text.
func shortened(s string, most int) string {
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most-1]) + "…"
}

// panel is a chart of a device's events.
type panel struct {
	c *columns
	s *series
}

// words say what the chart shows.
func (p *panel) words() []string {
	out := []string{fmt.Sprintf("%s: memory over %d events.", p.c.Name, p.s.n)}
	parts := []string{}
	for _, g := range p.s.groups {
		parts = append(parts, fmt.Sprintf("%s %v", g.name, tensor.Bytes(g.atPeak)))
	}
	out = append(out, fmt.Sprintf("At the peak, event %d: %s.", p.s.peak, strings.Join(parts, ", ")))
	if i := p.c.OOM; i >= 0 {
		out = append(out, fmt.Sprintf("Out of memory at event %d.", i))
	}
	return out
}

// look is that of a class of picture.css. The renderer leaves colours to the class, but draws only what has one.
func look(class string) chartdraw.Style {
	s := chartdraw.Style{ClassName: class, StrokeWidth: 1, StrokeColor: chartdraw.ColorBlack}
	s.FontSize, s.Font = 9, chartdraw.GetDefaultFont()
	return s
}

func area(class string) chartdraw.Style {
	s := look(class)
	s.FillColor = chartdraw.ColorBlack
	return s
}

// draw draws the chart: areas from the highest to the lowest, each down to the axis.
func (p *panel) draw(w io.Writer) error {
	s := p.s
	x := make([]float64, len(s.at))
	sum := make([]float64, len(s.at))
	top := 0.0
	for i, e := range s.at {
		x[i] = float64(e)
		top = max(top, s.reserved[i])
	}
	last := float64(max(s.n-1, 1))
	limit := float64(p.c.Limit)
	seen := limit > 0 && limit < 2*top
	if seen {
		top = max(top, limit)
	}
	ticks := sizeTicks(top * 1.06)
	ranges := [2]*chartdraw.ContinuousRange{{Max: last}, {Max: ticks[len(ticks)-1].Value}}
	scale := ranges[1].Max / panelHeight // bytes of a pixel
	var all []chartdraw.Series
	for g := range s.groups {
		for i, v := range s.groups[g].values {
			sum[i] += v
		}
		xs, ys := thinned(x, sum, scale/2)
		all = append(all, chartdraw.ContinuousSeries{Name: s.groups[g].name, Style: area(p.class(g)), YAxis: chartdraw.YAxisSecondary, XValues: xs, YValues: ys})
	}
	slices.Reverse(all)
	xs, ys := thinned(x, s.reserved, scale/2)
	all = append(all, chartdraw.ContinuousSeries{Name: "reserved", Style: look("reserved"), YAxis: chartdraw.YAxisSecondary, XValues: xs, YValues: ys})
	if seen {
		all = append(all, chartdraw.ContinuousSeries{Name: "usable", Style: look("limit"), YAxis: chartdraw.YAxisSecondary, XValues: []float64{0, last}, YValues: []float64{limit, limit}})
	}
	frame := chartdraw.Style{ClassName: "frame"}
	frame.Padding = chartdraw.Box{Top: 34, Left: 12, Right: legendWidth, Bottom: 12, IsSet: true}
	grid := chartdraw.Style{StrokeWidth: 1, StrokeColor: chartdraw.ColorAlternateGray.WithAlpha(80)} // grid lines take no class
	axis := look("axis")
	chart := chartdraw.Chart{
		Width: pictureWidth, Height: panelHeight, DPI: 96, Background: frame, Canvas: chartdraw.Style{ClassName: "frame"},
		XAxis:          chartdraw.XAxis{Style: axis, Range: ranges[0], Ticks: p.stepTicks(last)},
		YAxis:          chartdraw.YAxis{Style: chartdraw.Hidden(), Range: &chartdraw.ContinuousRange{Max: 1}},
		YAxisSecondary: chartdraw.YAxis{Style: axis, Range: ranges[1], Ticks: ticks, GridMajorStyle: grid, GridMinorStyle: grid},
		Series:         all,
		Elements:       []chartdraw.Renderable{p.marks(ranges, seen), p.legend},
	}
	return chart.Render(chartdraw.SVG, w)
}

// class is the class of a group.
func (p *panel) class(g int) string {
	switch name := p.s.groups[g].name; {
	case name == "rounding":
		return "rounding"
	case name == "other places":
		return "other"
	case len(p.c.Categories) > 0:
		if i := slices.Index(categoryOrder, strings.ReplaceAll(name, " ", "_")); i >= 0 {
			return fmt.Sprintf("area%d", i)
		}
		return "other"
	}
	return fmt.Sprintf("area%d", g)
}

// thinned leaves out points between two that are as high, within a bound.
func thinned(x, y []float64, bound float64) (xs, ys []float64) {
	for i := range x {
		if n := len(ys); n > 1 && i+1 < len(x) && near(y[i], ys[n-1], bound) && near(y[i+1], ys[n-1], bound) {
			continue
		}
		xs, ys = append(xs, x[i]), append(ys, y[i])
	}
	return xs, ys
}

func near(a, b, bound float64) bool { return a-b <= bound && b-a <= bound }

// sizeTicks are sizes for an axis.
func sizeTicks(top float64) []chartdraw.Tick {
	step := 1.0
	for top/step > 6 {
		step *= 2
	}
	var out []chartdraw.Tick
	for v := 0.0; ; v += step {
		text := tensor.Bytes(v).String()
		if number, unit, ok := strings.Cut(text, " "); ok && strings.Contains(number, ".") {
			text = strings.TrimRight(strings.TrimRight(number, "0"), ".") + " " + unit
		}
		out = append(out, chartdraw.Tick{Value: v, Label: text})
		if v >= top {
			return out
		}
	}
}

// stepTicks name the steps where they begin, as many as there is room for.
func (p *panel) stepTicks(last float64) []chartdraw.Tick {
	const room = 60 // pixels of a name
	out := []chartdraw.Tick{{Value: 0, Label: "0"}}
	const width = pictureWidth - legendWidth - 90
	free := float64(room) / width * last
	for _, b := range p.s.steps {
		if at := float64(b.at); at-out[len(out)-1].Value >= free && last-at >= free {
			out = append(out, chartdraw.Tick{Value: at, Label: fmt.Sprintf("step %d", b.step)})
		}
	}
	return append(out, chartdraw.Tick{Value: last, Label: fmt.Sprintf("event %d", p.s.n-1)})
}

// marks are the peak, the request that fails, and names of lines.
func (p *panel) marks(ranges [2]*chartdraw.ContinuousRange, limit bool) chartdraw.Renderable {
	return func(r chartdraw.Renderer, box chartdraw.Box, _ chartdraw.Style) {
		vertical := func(i int, class, text string, y int) {
			x := box.Left + ranges[0].Translate(float64(i))
			look(class).GetStrokeOptions().WriteToRenderer(r)
			r.MoveTo(x, box.Top)
			r.LineTo(x, box.Bottom)
			r.Stroke()
			label := look(class)
			width := chartdraw.Draw.MeasureText(r, text, label).Width()
			chartdraw.Draw.Text(r, text, min(max(x-width/2, box.Left), box.Right-width), y, label)
		}
		vertical(p.s.peak, "peak", "peak "+tensor.Bytes(p.c.PeakAllocated).String(), box.Top-4)
		if p.c.OOM >= 0 {
			vertical(p.c.OOM, "oom", "OUT OF MEMORY", box.Top-18)
		}
		if limit {
			y := box.Bottom - ranges[1].Translate(float64(p.c.Limit))
			chartdraw.Draw.Text(r, "usable "+tensor.Bytes(p.c.Limit).String(), box.Left+6, y-5, look("limit"))
		}
	}
}

// legend lists the areas as they lie, with their sizes at the peak.
func (p *panel) legend(r chartdraw.Renderer, box chartdraw.Box, _ chartdraw.Style) {
	left, y := box.Right+20, box.Top+6
	row := func(class, name, size string, filled bool) {
		if filled {
			chartdraw.Draw.Box(r, chartdraw.Box{Left: left, Right: left + 12, Top: y - 10, Bottom: y + 1, IsSet: true}, area(class))
		} else if class != "" {
			look(class).GetStrokeOptions().WriteToRenderer(r)
			r.MoveTo(left, y-4)
			r.LineTo(left+12, y-4)
			r.Stroke()
		}
		text := look("text")
		chartdraw.Draw.Text(r, shortened(name, 17), left+18, y, text)
		width := chartdraw.Draw.MeasureText(r, size, text).Width()
		chartdraw.Draw.Text(r, size, pictureWidth-14-width, y, text)
		y += 19
	}
	row("", "At the peak", "", false)
	var sum int64
	for g := range slices.Backward(p.s.groups) {
		x := &p.s.groups[g]
		sum += x.atPeak
		row(p.class(g), x.name, tensor.Bytes(x.atPeak).String(), true)
	}
	row("", "allocated", tensor.Bytes(sum).String(), false)
	y += 6
	row("reserved", "reserved, most", tensor.Bytes(p.c.PeakReserved).String(), false)
	if p.c.Limit > 0 {
		row("limit", "usable", tensor.Bytes(p.c.Limit).String(), false)
	}
}
