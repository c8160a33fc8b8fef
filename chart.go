package e2b

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

// ChartType is the kind of a chart.
type ChartType string

// The kinds of chart that the interpreter tells apart. An object in the sandbox may
// describe itself with any other.
const (
	ChartLine          ChartType = "line"
	ChartScatter       ChartType = "scatter"
	ChartBar           ChartType = "bar" // histograms, too
	ChartPie           ChartType = "pie"
	ChartBoxAndWhisker ChartType = "box_and_whisker"
	ChartSuperchart    ChartType = "superchart" // a figure of several charts
	ChartUnknown       ChartType = "unknown"    // as a picture, or charts in one another
)

// Chart is what the interpreter makes of a matplotlib figure. Type says which of
// the fields are set; of a Type without a constant here that are Title and Raw.
//
// The interpreter guesses. It takes bars of one height for horizontal ones, and of
// horizontal ones it swaps the labels of the axes; a box plot that is not filled is
// a line.
//
// See https://e2b.dev/docs/code-interpreting.
type Chart struct {
	Type  ChartType // "" for a figure of which nothing could be made
	Title string

	X, Y   ChartAxis      // of ChartLine and ChartScatter; Label and Unit also of ChartBar and ChartBoxAndWhisker
	Series []ChartSeries  // of ChartLine and ChartScatter
	Bars   []ChartBarItem // of ChartBar
	Slices []ChartSlice   // of ChartPie
	Boxes  []ChartBox     // of ChartBoxAndWhisker
	Charts []Chart        // of ChartSuperchart, one per axes

	Raw json.RawMessage // the whole, as it came
}

// ChartAxis is an axis of a chart.
type ChartAxis struct {
	Label      string
	Unit       string // from the label: what is in brackets behind it
	Scale      string // of matplotlib, as "linear", "log", "datetime", "categorical"
	Ticks      []ChartValue
	TickLabels []string
}

// ChartSeries are points that belong together.
type ChartSeries struct {
	Label  string
	Points []ChartPoint
}

// ChartPoint is a point of a series.
type ChartPoint struct{ X, Y ChartValue }

// ChartValue is a number, a date or a category.
type ChartValue struct {
	IsNumber bool
	Number   float64 // NaN or infinite where the text says so; NaN for any other text
	Text     string  // "" for a number
}

// ChartBarItem is a bar.
type ChartBarItem struct {
	Label, Group string
	Value        float64
}

// ChartSlice is a slice of a pie.
type ChartSlice struct {
	Label  string
	Angle  float64 // in degrees
	Radius float64
}

// ChartBox is a box with its whiskers.
type ChartBox struct {
	Label                                          string
	Min, FirstQuartile, Median, ThirdQuartile, Max float64
	Outliers                                       []float64
}

// String returns the value as text.
func (v ChartValue) String() string {
	if v.IsNumber {
		return strconv.FormatFloat(v.Number, 'g', -1, 64)
	}
	return v.Text
}

// Time returns the point in time that the value is, and false if it is none. One
// without a zone is taken as UTC.
func (v ChartValue) Time() (time.Time, bool) {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", time.DateOnly} {
		if t, err := time.Parse(layout, v.Text); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

// UnmarshalJSON reads a number or a string. Any other value becomes its own text.
func (v *ChartValue) UnmarshalJSON(raw []byte) error {
	*v = ChartValue{Number: math.NaN()}
	switch c := raw[0]; {
	case c == '"':
		if err := json.Unmarshal(raw, &v.Text); err != nil {
			return err
		}
		switch v.Text {
		case "inf":
			v.Number = math.Inf(1)
		case "-inf":
			v.Number = math.Inf(-1)
		}
	case c == '-' || '0' <= c && c <= '9':
		f, err := strconv.ParseFloat(string(raw), 64)
		if v.Number, v.IsNumber = f, err == nil; err != nil { // out of range, and infinite
			v.Text = strings.TrimPrefix(strings.ToLower(strconv.FormatFloat(f, 'g', -1, 64)), "+")
		}
	default:
		v.Text = string(raw)
	}
	return nil
}

// MarshalJSON writes what UnmarshalJSON reads.
func (v ChartValue) MarshalJSON() ([]byte, error) {
	if v.IsNumber {
		return json.Marshal(v.Number)
	}
	return json.Marshal(v.Text)
}

// ParseChart reads Chart. It returns nil, and no error, for a result without one.
//
// Errors: those of json.Unmarshal, for an object that describes itself in another
// way than its Type has it.
func (r *CodeResult) ParseChart() (*Chart, error) {
	if r.Chart == nil {
		return nil, nil
	}
	const op = "read chart"
	if r.Chart[0] != '{' {
		return nil, &opError{op: op, errs: []error{errors.New("it is not a JSON object")}}
	}
	var c Chart
	if err := c.parse(r.Chart, 0); err != nil {
		return nil, &opError{op: op, errs: []error{err}}
	}
	return &c, nil
}

// chartLabel is text, or whatever stands in its place.
type chartLabel string

func (l *chartLabel) UnmarshalJSON(raw []byte) error {
	if string(raw) == "null" {
		return nil
	}
	var v ChartValue
	err := v.UnmarshalJSON(raw)
	*l = chartLabel(v.String())
	return err
}

// chartNumber is a number, which is text when it is not finite.
type chartNumber float64

func (n *chartNumber) UnmarshalJSON(raw []byte) error {
	var v ChartValue
	err := v.UnmarshalJSON(raw)
	*n = chartNumber(v.Number)
	if f, perr := strconv.ParseFloat(strings.TrimSpace(v.Text), 64); perr == nil {
		*n = chartNumber(f)
	}
	return err
}

// chartPoint is a pair.
type chartPoint ChartPoint

func (p *chartPoint) UnmarshalJSON(raw []byte) error {
	var pair []ChartValue
	if err := json.Unmarshal(raw, &pair); err != nil {
		return err
	}
	if len(pair) != 2 {
		return errors.New("a point is not a pair")
	}
	p.X, p.Y = pair[0], pair[1]
	return nil
}

// maxChartDepth is how deep charts are looked for in one another. The interpreter
// makes two levels.
const maxChartDepth = 4

func (c *Chart) parse(raw json.RawMessage, depth int) error {
	c.Raw = raw
	var kind struct {
		Type  chartLabel `json:"type"`
		Title chartLabel `json:"title"`
	}
	if err := json.Unmarshal(raw, &kind); err != nil {
		return err
	}
	c.Type, c.Title = ChartType(kind.Type), string(kind.Title)
	switch c.Type {
	case ChartLine, ChartScatter, ChartBar, ChartBoxAndWhisker, ChartPie, ChartSuperchart:
	default:
		return nil
	}
	var wire struct {
		Elements    json.RawMessage `json:"elements"`
		XLabel      chartLabel      `json:"x_label"`
		YLabel      chartLabel      `json:"y_label"`
		XUnit       chartLabel      `json:"x_unit"`
		YUnit       chartLabel      `json:"y_unit"`
		XScale      chartLabel      `json:"x_scale"`
		YScale      chartLabel      `json:"y_scale"`
		XTicks      []ChartValue    `json:"x_ticks"`
		YTicks      []ChartValue    `json:"y_ticks"`
		XTickLabels []chartLabel    `json:"x_tick_labels"`
		YTickLabels []chartLabel    `json:"y_tick_labels"`
	}
	if err := json.Unmarshal(raw, &wire); err != nil {
		return err
	}
	if c.Type != ChartPie && c.Type != ChartSuperchart {
		c.X = ChartAxis{string(wire.XLabel), string(wire.XUnit), string(wire.XScale), wire.XTicks, chartTexts(wire.XTickLabels)}
		c.Y = ChartAxis{string(wire.YLabel), string(wire.YUnit), string(wire.YScale), wire.YTicks, chartTexts(wire.YTickLabels)}
	}
	if len(wire.Elements) == 0 {
		return nil
	}
	return c.parseElements(wire.Elements, depth)
}

func chartTexts(labels []chartLabel) []string {
	if labels == nil {
		return nil
	}
	out := make([]string, len(labels))
	for i, l := range labels {
		out[i] = string(l)
	}
	return out
}

func (c *Chart) parseElements(raw json.RawMessage, depth int) error {
	switch c.Type {
	case ChartLine, ChartScatter:
		var elements []struct {
			Label  chartLabel   `json:"label"`
			Points []chartPoint `json:"points"`
		}
		if err := json.Unmarshal(raw, &elements); err != nil {
			return err
		}
		for _, e := range elements {
			s := ChartSeries{Label: string(e.Label), Points: make([]ChartPoint, len(e.Points))}
			for i, p := range e.Points {
				s.Points[i] = ChartPoint(p)
			}
			c.Series = append(c.Series, s)
		}
	case ChartBar:
		var elements []struct {
			Label chartLabel  `json:"label"`
			Group chartLabel  `json:"group"`
			Value chartNumber `json:"value"`
		}
		if err := json.Unmarshal(raw, &elements); err != nil {
			return err
		}
		for _, e := range elements {
			c.Bars = append(c.Bars, ChartBarItem{string(e.Label), string(e.Group), float64(e.Value)})
		}
	case ChartPie:
		var elements []struct {
			Label  chartLabel  `json:"label"`
			Angle  chartNumber `json:"angle"`
			Radius chartNumber `json:"radius"`
		}
		if err := json.Unmarshal(raw, &elements); err != nil {
			return err
		}
		for _, e := range elements {
			c.Slices = append(c.Slices, ChartSlice{string(e.Label), float64(e.Angle), float64(e.Radius)})
		}
	case ChartBoxAndWhisker:
		var elements []struct {
			Label         chartLabel    `json:"label"`
			Min           chartNumber   `json:"min"`
			FirstQuartile chartNumber   `json:"first_quartile"`
			Median        chartNumber   `json:"median"`
			ThirdQuartile chartNumber   `json:"third_quartile"`
			Max           chartNumber   `json:"max"`
			Outliers      []chartNumber `json:"outliers"`
		}
		if err := json.Unmarshal(raw, &elements); err != nil {
			return err
		}
		for _, e := range elements {
			box := ChartBox{
				Label: string(e.Label), Min: float64(e.Min), FirstQuartile: float64(e.FirstQuartile), Median: float64(e.Median),
				ThirdQuartile: float64(e.ThirdQuartile), Max: float64(e.Max),
			}
			for _, n := range e.Outliers {
				box.Outliers = append(box.Outliers, float64(n))
			}
			c.Boxes = append(c.Boxes, box)
		}
	case ChartSuperchart:
		var elements []json.RawMessage
		if err := json.Unmarshal(raw, &elements); err != nil {
			return err
		}
		if depth >= maxChartDepth {
			return nil // Raw has them
		}
		c.Charts = make([]Chart, len(elements))
		for i, e := range elements {
			if err := c.Charts[i].parse(e, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}
