"""The data of Matplotlib figures, in the form in which the code interpreter gives it.

Artists are told apart by the names of their classes, so nothing has to be imported.
Where the real service is known to be wrong, this is so in the same way: bars of equal
height are taken for horizontal ones.
"""

import datetime
import re
import sys


def chart(figure):
    """Returns the chart of a figure; an empty one if it is blank or cannot be told."""
    try:
        if len(figure.axes) == 1:
            axes = figure.axes[0]
            return _chart(axes) if _artists(axes) else {}
        if not figure.axes:
            return {}
        title = getattr(figure, "_suptitle", None)
        return {
            "type": "superchart",
            "title": title.get_text() if title is not None else "",
            "elements": [_chart(axes) for axes in figure.axes],
        }
    except Exception:  # it depends on the version of Matplotlib, and is not worth the result
        return {}


def _chart(axes):
    artists = _artists(axes)
    kind, elements = "unknown", []
    if artists:
        for names, kind, read in _KINDS:
            if all(any(_is(artist, name) for name in names) for artist in artists):
                elements = read(axes, artists)
                break
        else:
            kind = "unknown"
    result = {"type": kind, "title": axes.get_title() or None, "elements": elements}
    if kind in ("unknown", "pie"):
        return result
    labels = [axes.get_xlabel() or None, axes.get_ylabel() or None]
    if kind == "bar" and any(map(_horizontal, axes.containers)):
        labels.reverse()
    for name, label in zip("xy", labels):
        result[name + "_label"] = label
        result[name + "_unit"] = _unit(label)
    if kind in ("line", "scatter"):
        for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
            scale = _scale(axis)
            ticks = [float(tick) for tick in axis.get_ticklocs()]
            if scale == "datetime":
                ticks = [sys.modules["matplotlib.dates"].num2date(tick).isoformat() for tick in ticks]
            result[name + "_ticks"] = ticks
            result[name + "_tick_labels"] = _tick_labels(axis)
            result[name + "_scale"] = scale
    return result


def _artists(axes):
    return [artist for artist in axes._children if not _is(artist, "Text")]


def _is(artist, name):
    return any(kind.__name__ == name for kind in type(artist).__mro__)


def _unit(label):
    match = re.search(r"\s\((.*?)\)|\[(.*?)\]", label or "")
    return (match.group(1) or match.group(2)) if match else None


def _scale(axis):
    get = getattr(axis, "get_converter", None)  # since Matplotlib 3.10
    converter = type(get() if get is not None else getattr(axis, "converter", None)).__name__
    if "DateConverter" in converter:
        return "datetime"
    if "StrCategoryConverter" in converter:
        return "categorical"
    return axis.get_scale()


def _tick_labels(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def _value(value):
    if isinstance(value, str):
        return value
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    try:
        return float(value)
    except (TypeError, ValueError):
        return str(value)


def _points(xs, ys):
    return [[_value(x), _value(y)] for x, y in zip(xs, ys)]


def _lines(axes, lines):
    return [
        {"label": re.sub(r"^_child(\d+)$", r"Line \1", line.get_label()), "points": _points(line.get_xdata(), line.get_ydata())}
        for line in lines
    ]


def _scatters(axes, scatters):
    return [{"label": scatter.get_label(), "points": _points(*zip(*scatter.get_offsets()))} for scatter in scatters]


def _horizontal(bars):
    return len({bar.get_height() for bar in bars}) == 1


def _bars(axes, artists):
    elements = []
    for bars in axes.containers:
        group = re.sub(r"^_container(\d+)$", r"Group \1", bars.get_label())
        horizontal = _horizontal(bars)
        labels = _tick_labels(axes.yaxis if horizontal else axes.xaxis)
        for label, bar in zip(labels, bars):
            value = bar.get_width() if horizontal else bar.get_height()
            elements.append({"label": label, "group": group, "value": _value(value)})
    return elements


def _boxes(axes, artists):
    elements = []
    starts = [i for i, artist in enumerate(artists) if _is(artist, "PathPatch")]
    for label, start, end in zip(_tick_labels(axes.xaxis), starts, starts[1:] + [len(artists)]):
        # In the order in which Matplotlib draws them: whiskers, caps, the median, outliers.
        low, high, _, _, median, *outliers = [[_value(y) for y in line.get_ydata()] for line in artists[start + 1:end]]
        elements.append({
            "label": label, "min": low[1], "first_quartile": low[0], "median": median[0],
            "third_quartile": high[0], "max": high[1], "outliers": [y for line in outliers for y in line],
        })
    return elements


def _wedges(axes, wedges):
    return [
        {"label": wedge.get_label(), "angle": _value(wedge.theta2 - wedge.theta1), "radius": _value(wedge.r)}
        for wedge in wedges
    ]


_KINDS = (
    (("Line2D",), "line", _lines),
    (("PathPatch", "Line2D"), "box_and_whisker", _boxes),
    (("PathCollection",), "scatter", _scatters),
    (("Wedge",), "pie", _wedges),
    (("Rectangle",), "bar", _bars),
)
