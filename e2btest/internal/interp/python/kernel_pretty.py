"""The text of a value, laid out as an interactive Python prints it.

A value that fits on one line looks like its repr. A longer container has one
element per line, and so on inwards:

    [[1, 2, 3],
     {'a': 1,
      'b': 2}]
"""

import collections
import inspect
import types

WIDTH = 79
MAX_LENGTH = 1000  # elements of a container; "..." stands for the rest


def pretty(value):
    out = []
    _layout(_node(value, set()), 0, 0, out)
    return "".join(out)


# A node is a string, or a group: a list of an opening text, items and a closing
# text. An item is a (prefix, node) pair; between items is ", " or a line break.


def _node(value, open_ids):
    kind = type(value)
    for base in kind.__mro__:
        layout = _LAYOUTS.get(base)
        if layout is not None:
            if kind.__repr__ is not base.__repr__:
                break
            if id(value) in open_ids:
                return _CYCLES.get(base, "...")
            open_ids.add(id(value))
            try:
                return layout(value, open_ids)
            finally:
                open_ids.discard(id(value))
    return _leaf(value)


def _leaf(value):
    kind = type(value)
    if isinstance(value, type):
        if type(value).__repr__ is not type.__repr__:
            return repr(value)
        return _qualified(value)
    if isinstance(value, (types.FunctionType, types.BuiltinFunctionType)):
        try:
            signature = str(inspect.signature(value))
        except (TypeError, ValueError):
            signature = ""
        name = value.__qualname__
        if value.__module__ not in (None, "builtins"):
            name = value.__module__ + "." + name
        return "<function %s%s>" % (name, signature)
    if kind.__repr__ is object.__repr__:
        return "<%s at 0x%x>" % (_qualified(kind), id(value))
    return repr(value)


def _qualified(kind):
    if kind.__module__ in (None, "builtins", "exceptions"):
        return kind.__qualname__
    return "%s.%s" % (kind.__module__, kind.__qualname__)


def _elements(values, open_ids):
    items = []
    for i, value in enumerate(values):
        if i == MAX_LENGTH:
            items.append(("", "..."))
            break
        items.append(("", _node(value, open_ids)))
    return items


def _list(value, open_ids):
    return ["[", _elements(value, open_ids), "]"]


def _tuple(value, open_ids):
    return ["(", _elements(value, open_ids), ",)" if len(value) == 1 else ")"]


def _set(value, open_ids):
    if not value:
        return "set()"
    return ["{", _elements(_sorted(value), open_ids), "}"]


def _frozenset(value, open_ids):
    if not value:
        return "frozenset()"
    return ["frozenset({", _elements(_sorted(value), open_ids), "})"]


def _sorted(values):
    try:
        return sorted(values)
    except Exception:  # whatever the elements' comparison raises
        return list(values)


def _dict(value, open_ids):
    items = []
    for i, (key, element) in enumerate(value.items()):
        if i == MAX_LENGTH:
            items.append(("", "..."))
            break
        name = []
        _layout(_node(key, open_ids), 0, 0, name)
        items.append(("".join(name) + ": ", _node(element, open_ids)))
    return ["{", items, "}"]


def _defaultdict(value, open_ids):
    return ["defaultdict(", [("", _leaf(value.default_factory)), ("", _dict(value, open_ids))], ")"]


def _counter(value, open_ids):
    if not value:
        return "Counter()"
    return ["Counter(", [("", _dict(dict(value.most_common()), open_ids))], ")"]


def _deque(value, open_ids):
    items = [("", _list(value, open_ids))]
    if value.maxlen is not None:
        items.append(("maxlen=", repr(value.maxlen)))
    return ["deque(", items, ")"]


_LAYOUTS = {
    list: _list,
    tuple: _tuple,
    set: _set,
    frozenset: _frozenset,
    dict: _dict,
    collections.defaultdict: _defaultdict,
    collections.Counter: _counter,
    collections.deque: _deque,
}

_CYCLES = {list: "[...]", tuple: "(...)", dict: "{...}"}


def _width(node, limit):
    """The width of node on one line; any number above limit if it is wider."""
    if isinstance(node, str):
        return limit + 1 if "\n" in node else len(node)
    opening, items, closing = node
    total = len(opening) + len(closing) + 2 * max(len(items) - 1, 0)
    for prefix, item in items:
        total += len(prefix)
        if total > limit:
            break
        total += _width(item, limit - total)
    return total


def _layout(node, column, after, out):
    """Appends node, which starts at column and is followed by after characters.

    Returns the column of its end.
    """
    if isinstance(node, str):
        lines = node.split("\n")
        out.append(("\n" + " " * column).join(lines))
        return column + len(lines[-1])
    opening, items, closing = node
    space = WIDTH - column - after
    flat = _width(node, space) <= space
    out.append(opening)
    indent = column = column + len(opening)
    for i, (prefix, item) in enumerate(items):
        last = i == len(items) - 1
        if i > 0:
            if flat:
                out.append(", ")
                column += 2
            else:
                out.append(",\n" + " " * indent)
                column = indent
        out.append(prefix)
        column = _layout(item, column + len(prefix), after + len(closing) if last else 1, out)
    out.append(closing)
    return column + len(closing)


def unquoted(text):
    """Returns text without one pair of equal outer quotes, whatever is between them.

    That is what the real server does to every text, not only to those of strings.
    """
    if text[:1] in ("'", '"') and text[-1:] == text[:1]:
        return text[1:-1]
    return text
