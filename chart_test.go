package e2b_test

import (
	"encoding/json"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
)

func num(n float64) e2b.ChartValue { return e2b.ChartValue{IsNumber: true, Number: n} }

// chartOf reads the chart of a recording.
func chartOf(t testing.TB, name string) *e2b.Chart {
	t.Helper()
	for _, r := range recorded(t, name).Results {
		if r.Chart == nil {
			continue
		}
		c, err := r.ParseChart()
		require.NoError(t, err, name)
		require.Equal(t, string(r.Chart), string(c.Raw))
		return c
	}
	t.Fatal("no chart in " + name)
	return nil
}

func TestRecordedCharts(t *testing.T) {
	c := chartOf(t, "23_chart_line")
	require.Equal(t, e2b.ChartLine, c.Type)
	require.Equal(t, "T", c.Title)
	require.Equal(t, []e2b.ChartSeries{
		{Label: "a", Points: []e2b.ChartPoint{{X: num(1), Y: num(4)}, {X: num(2), Y: num(5)}, {X: num(3), Y: num(6)}}},
		{Label: "Line 1", Points: []e2b.ChartPoint{{X: num(1), Y: num(6)}, {X: num(2), Y: num(5)}, {X: num(3), Y: num(4)}}},
	}, c.Series)
	require.Equal(t, e2b.ChartAxis{
		Label: "Time (s)", Unit: "s", Scale: "linear",
		Ticks: []e2b.ChartValue{num(0), num(1), num(2), num(3), num(4)}, TickLabels: []string{"0", "1", "2", "3", "4"},
	}, c.X)
	require.Equal(t, "mV", c.Y.Unit)

	c = chartOf(t, "24_chart_line_datetime")
	require.Equal(t, "datetime", c.X.Scale)
	at, ok := c.Series[0].Points[1].X.Time()
	require.True(t, ok)
	require.Equal(t, time.Date(2024, 1, 2, 0, 0, 0, 0, time.UTC), at)
	at, ok = c.X.Ticks[1].Time()
	require.True(t, ok)
	require.Equal(t, 3, at.Hour())
	require.Empty(t, c.Title)

	c = chartOf(t, "25_chart_line_categorical")
	require.Equal(t, "a", c.Series[0].Points[0].X.Text)
	require.False(t, c.Series[0].Points[0].X.IsNumber)
	_, ok = c.Series[0].Points[0].X.Time()
	require.False(t, ok)
	require.Equal(t, "log", chartOf(t, "26_chart_line_log").Y.Scale)
	nan := chartOf(t, "27_chart_line_nan").Series[0].Points[1].Y
	require.True(t, math.IsNaN(nan.Number))
	require.Equal(t, "nan", nan.String())

	c = chartOf(t, "28_chart_scatter")
	require.Equal(t, e2b.ChartScatter, c.Type)
	require.Equal(t, []e2b.ChartSeries{
		{Label: "s", Points: []e2b.ChartPoint{{X: num(1), Y: num(3)}, {X: num(2), Y: num(4)}}},
		{Label: "_child1", Points: []e2b.ChartPoint{{X: num(1), Y: num(2)}}},
	}, c.Series)

	c = chartOf(t, "29_chart_bar")
	require.Equal(t, e2b.ChartBar, c.Type)
	require.Equal(t, []e2b.ChartBarItem{{"a", "Group 0", 3}, {"b", "Group 0", 5}}, c.Bars)
	require.Equal(t, e2b.ChartAxis{Label: "X"}, c.X)
	require.Len(t, chartOf(t, "30_chart_bar_grouped").Bars, 4)

	c = chartOf(t, "32_chart_pie")
	require.Equal(t, "Pie", c.Title)
	require.Equal(t, []e2b.ChartSlice{{"p", 90, 1}, {"q", 270, 1}}, c.Slices)

	c = chartOf(t, "33_chart_box_and_whisker")
	require.Equal(t, e2b.ChartBoxAndWhisker, c.Type)
	require.Equal(t, e2b.ChartBox{Label: "Class A", Min: 78, FirstQuartile: 85, Median: 88, ThirdQuartile: 90, Max: 92}, c.Boxes[0])
	require.Equal(t, []float64{76}, c.Boxes[1].Outliers)
	require.Equal(t, "Score", c.Y.Label)

	c = chartOf(t, "34_chart_superchart")
	require.Equal(t, e2b.ChartSuperchart, c.Type)
	require.Equal(t, "S", c.Title)
	require.Len(t, c.Charts, 3)
	require.Equal(t, e2b.ChartLine, c.Charts[0].Type)
	require.Equal(t, num(4), c.Charts[0].Series[0].Points[1].Y)
	require.Equal(t, e2b.ChartScatter, c.Charts[1].Type)

	c = chartOf(t, "35_chart_unknown")
	require.Equal(t, e2b.ChartUnknown, c.Type)
	require.Equal(t, "im", c.Title)
	require.Equal(t, &e2b.Chart{Raw: json.RawMessage("{}")}, chartOf(t, "36_chart_empty_object"))

	c, err := (&e2b.CodeResult{}).ParseChart()
	require.NoError(t, err)
	require.Nil(t, c)
}

// Objects in the sandbox may describe themselves as they like.
func TestOddCharts(t *testing.T) {
	parse := func(s string) (*e2b.Chart, error) { return (&e2b.CodeResult{Chart: json.RawMessage(s)}).ParseChart() }
	for _, s := range []string{
		`5`, `[]`, `"line"`, `{"type":"line","elements":5}`, `{"type":"line","elements":[{"points":[[1]]}]}`,
		`{"type":"line","elements":[{"points":[{"x":1}]}]}`, `{"type":"superchart","elements":[5]}`, `{"type":"bar","elements":{"a":1}}`,
		`{"type":"pie","elements":[1]}`, `{"type":"box_and_whisker","elements":[{"outliers":1}]}`, `{"type":"line","x_ticks":1}`,
	} {
		_, err := parse(s)
		requireDataKinds(t, err)
	}
	c, err := parse(`{"type":"radar","title":7,"elements":"mine"}`)
	require.NoError(t, err)
	require.Equal(t, e2b.ChartType("radar"), c.Type)
	require.Equal(t, "7", c.Title)
	c, err = parse(`{"type":["x"]}`)
	require.NoError(t, err)
	require.Equal(t, e2b.ChartType(`["x"]`), c.Type)
	for _, s := range []string{`{"type":"line"}`, `{"type":"bar","elements":null}`, `{"type":"pie","elements":[]}`} {
		_, err = parse(s)
		require.NoError(t, err)
	}
	c, err = parse(`{"type":"bar","elements":[{"label":3,"group":null,"value":"nan"},{"value":"-inf"},{"value":"2.5"},{"value":"a"},{"value":1e999}]}`)
	require.NoError(t, err)
	require.Equal(t, "3", c.Bars[0].Label)
	require.True(t, math.IsNaN(c.Bars[0].Value))
	require.True(t, math.IsInf(c.Bars[1].Value, -1))
	require.InDelta(t, 2.5, c.Bars[2].Value, 0)
	require.True(t, math.IsNaN(c.Bars[3].Value))
	require.True(t, math.IsInf(c.Bars[4].Value, 1))
	c, err = parse(`{"type":"scatter","elements":[{"points":[["inf",null],["-inf",true]]}]}`)
	require.NoError(t, err)
	p := c.Series[0].Points
	require.True(t, math.IsInf(p[0].X.Number, 1) && math.IsInf(p[1].X.Number, -1))
	require.Equal(t, "null", p[0].Y.Text)
	require.Equal(t, "true", p[1].Y.String())

	deep := strings.Repeat(`{"type":"superchart","elements":[`, 2000) + strings.Repeat(`]}`, 2000)
	c, err = parse(deep)
	require.NoError(t, err)
	depth := 0
	for ; len(c.Charts) > 0; c = &c.Charts[0] {
		depth++
	}
	require.Equal(t, 4, depth)
	require.NotEmpty(t, c.Raw)
}

// FuzzChart: whatever the chart, it is read or refused, and a value that is read
// can be written again.
func FuzzChart(f *testing.F) {
	for _, name := range recordings(f, "code-interpreter/*_chart_*") {
		rec := readRecording(f, name)
		for line := range strings.Lines(string(rec.body)) {
			var l struct{ Chart json.RawMessage }
			if json.Unmarshal([]byte(line), &l) == nil && l.Chart != nil {
				f.Add([]byte(l.Chart))
			}
		}
	}
	f.Add([]byte(`{"type":"bar","elements":[{"value":"nan"}],"x_ticks":[1e999,"inf",null]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		line := append(append([]byte(`{"type":"result","chart":`), raw...), '}')
		if !json.Valid(line) || strings.ContainsAny(string(raw), "\r\n") {
			return
		}
		r := emptySandbox(e2b.StateRunning, "proto")
		r.answers[executePath] = func() *http.Response {
			return answer(200, http.Header{}, append(append(line, '\n'), endLine...), nil)
		}
		e, err := r.handle(t, "proto").RunCode(t.Context(), "x", nil)
		if err != nil {
			return // another field was set behind the chart
		}
		for i := range e.Results {
			c, err := e.Results[i].ParseChart()
			if err != nil || c == nil {
				continue
			}
			require.True(t, json.Valid(c.Raw))
			for _, v := range append(c.X.Ticks, c.Y.Ticks...) {
				_ = v.String()
				_, _ = v.Time()
				b, err := json.Marshal(v)
				require.NoError(t, err)
				var again e2b.ChartValue
				require.NoError(t, json.Unmarshal(b, &again))
				require.Equal(t, v.IsNumber, again.IsNumber)
				require.Equal(t, v.String(), again.String())
			}
		}
	})
}
