//go:build unix

package interp

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// fakeMatplotlib has as much of Matplotlib as the kernel looks at.
const fakeMatplotlib = `
import datetime

class Thing:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)
    def __getattr__(self, name):
        if not name.startswith("get_") or name[4:] not in self.__dict__:
            raise AttributeError(name)
        return lambda: self.__dict__[name[4:]]

class Text(Thing): pass
class Line2D(Thing): pass
class PathCollection(Thing): pass
class PathPatch(Thing): pass
class Rectangle(Thing): pass
class Wedge(Thing): pass
class AxesImage(Thing): pass
class DateConverter: pass
class StrCategoryConverter: pass

class Container(list):
    def __init__(self, label, bars):
        super().__init__(bars)
        self.get_label = lambda: label

def axis(*ticks, labels="ab", scale="linear", converter=None):
    return Thing(ticklocs=ticks, ticklabels=[Text(text=t) for t in labels], scale=scale, converter=converter)

def axes(*children, title="", x=None, y=None, xlabel="", ylabel="", containers=()):
    return Thing(_children=children, title=title, xlabel=xlabel, ylabel=ylabel, containers=containers,
                 xaxis=x or axis(0, 1), yaxis=y or axis(2))

class Figure:
    dpi = 100
    def __init__(self, *axes, title=None):
        self.axes = axes
        self._suptitle = None if title is None else Text(text=title)
    def __repr__(self):
        return "<Figure>"
    def savefig(self, file, **options):
        file.write(b"\x89PNG")

def num2date(n):
    return datetime.datetime(2024, 1, int(n), tzinfo=datetime.timezone.utc)
`

func TestCharts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "matplotlib")
	require.NoError(t, os.Mkdir(dir, 0o700))
	for name, source := range map[string]string{
		"__init__.py": "rcParams = {}", "figure.py": fakeMatplotlib, "dates.py": "from matplotlib.figure import num2date",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(source), 0o600))
	}
	s := newService(t, func(c *Config) { c.Environ = append(c.Environ, "PYTHONPATH="+filepath.Dir(dir)) })
	require.Empty(t, s.run("import matplotlib.dates\nfrom matplotlib.figure import *\nimport datetime as dt").errors)

	const unlabelled = `"x_label": null, "y_label": null, "x_unit": null, "y_unit": null`
	const ticks = `"x_ticks": [0, 1], "x_tick_labels": ["a", "b"], "x_scale": "linear", "y_ticks": [2], "y_tick_labels": ["a", "b"], "y_scale": "linear"`
	for _, c := range []struct{ name, figure, want string }{
		{"line", `axes(Line2D(label='l', xdata=[1, 2], ydata=[3, float('nan')]), Line2D(label='_child1', xdata=['c'], ydata=[4]),
			title='T', xlabel='Time (s)', ylabel='V [mV]')`, `{"type": "line", "title": "T", "elements": [
			{"label": "l", "points": [[1, 3], [2, "nan"]]}, {"label": "Line 1", "points": [["c", 4]]}],
			"x_label": "Time (s)", "x_unit": "s", "y_label": "V [mV]", "y_unit": "mV", ` + ticks + `}`},
		{"dates", `axes(Line2D(label='l', xdata=[dt.datetime(2024, 1, 1)], ydata=[1]),
			x=axis(1, converter=DateConverter()), y=axis(5, scale='log', converter=StrCategoryConverter()))`, `{"type": "line", "title": null,
			"elements": [{"label": "l", "points": [["2024-01-01T00:00:00", 1]]}], ` + unlabelled + `,
			"x_ticks": ["2024-01-01T00:00:00+00:00"], "x_tick_labels": ["a", "b"], "x_scale": "datetime",
			"y_ticks": [5], "y_tick_labels": ["a", "b"], "y_scale": "categorical"}`},
		{"scatter", `axes(PathCollection(label='_child0', offsets=[(1, 2), (3, 4)]), y=axis(2, scale='log'))`, `{"type": "scatter", "title": null,
			"elements": [{"label": "_child0", "points": [[1, 2], [3, 4]]}], ` + unlabelled + `,
			"x_ticks": [0, 1], "x_tick_labels": ["a", "b"], "x_scale": "linear", "y_ticks": [2], "y_tick_labels": ["a", "b"], "y_scale": "log"}`},
		{
			"bar", `axes(Rectangle(), Text(), containers=[Container('_container0', [Rectangle(height=1, width=.8), Rectangle(height=2, width=.8)])], xlabel='X')`,
			`{"type": "bar", "title": null, "elements": [{"label": "a", "group": "Group 0", "value": 1}, {"label": "b", "group": "Group 0", "value": 2}],
			"x_label": "X", "y_label": null, "x_unit": null, "y_unit": null}`,
		},
		{
			"one bar", `axes(Rectangle(), containers=[Container('g', [Rectangle(height=1, width=.8)])], y=axis(labels='yz'), xlabel='X')`,
			`{"type": "bar", "title": null, "elements": [{"label": "y", "group": "g", "value": 0.8}],
			"x_label": null, "y_label": "X", "x_unit": null, "y_unit": null}`,
		},
		{
			"pie", `axes(Wedge(label='p', theta1=0, theta2=90, r=1), Text(), title='Pie')`,
			`{"type": "pie", "title": "Pie", "elements": [{"label": "p", "angle": 90, "radius": 1}]}`,
		},
		{"box", `axes(PathPatch(), *[Line2D(ydata=y) for y in ([2, 1], [4, 5], [1], [5], [3], [9])])`, `{"type": "box_and_whisker", "title": null, "elements": [
			{"label": "a", "min": 1, "first_quartile": 2, "median": 3, "third_quartile": 4, "max": 5, "outliers": [9]}], ` + unlabelled + `}`},
		{"unknown", `axes(AxesImage(), title='im')`, `{"type": "unknown", "title": "im", "elements": []}`},
		{"blank", `axes()`, `{}`},
		{"not to be told", `axes(Line2D())`, `{}`},
		{"super", `axes(AxesImage()), axes(Wedge(label='p', theta1=0, theta2=90, r=2)), title='S'`, `{"type": "superchart", "title": "S", "elements": [
			{"type": "unknown", "title": null, "elements": []}, {"type": "pie", "title": null, "elements": [{"label": "p", "angle": 90, "radius": 2}]}]}`},
		{"super without title", `axes(), axes()`, `{"type": "superchart", "title": "", "elements": [
			{"type": "unknown", "title": null, "elements": []}, {"type": "unknown", "title": null, "elements": []}]}`},
	} {
		r := s.run("Figure(" + c.figure + ")")
		require.Empty(t, r.errors, c.name)
		require.Empty(t, r.stderr, c.name)
		require.Equal(t, []line{{
			"type": "result", "text": "<Figure>", "png": "iVBORw==", "chart": decode[any](t, c.want), "extra": map[string]any{}, "is_main_result": true,
		}}, r.results, c.name)
	}
}
