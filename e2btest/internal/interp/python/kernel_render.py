"""Turns Python values into the results of the code-interpreter protocol."""

import base64
import dataclasses
import datetime
import enum
import io
import math
import sys
import traceback

import kernel_charts
import kernel_pretty

_METHODS = {
    "text/html": "_repr_html_",
    "text/markdown": "_repr_markdown_",
    "image/svg+xml": "_repr_svg_",
    "image/png": "_repr_png_",
    "application/pdf": "_repr_pdf_",
    "image/jpeg": "_repr_jpeg_",
    "text/latex": "_repr_latex_",
    "application/json": "_repr_json_",
    "application/javascript": "_repr_javascript_",
    "e2b/data": "_repr_e2b_data_",
    "e2b/chart": "_repr_e2b_chart_",
}

# Fields of a result, by MIME type. Everything else goes into "extra".
_FIELDS = {
    "text/plain": "text",
    "text/html": "html",
    "text/markdown": "markdown",
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpeg",
    "application/pdf": "pdf",
    "text/latex": "latex",
    "application/json": "json",
    "application/javascript": "javascript",
    "e2b/data": "data",
    "e2b/chart": "chart",
}


def bundle(value):
    """Returns the representations of value by MIME type, or None if value has displayed itself."""
    display = _method(value, "_ipython_display_")
    if display is not None:
        _call(display)
        return None
    types = {}
    made = _call(_method(value, "_repr_mimebundle_"), include=None, exclude=None)
    if isinstance(made, tuple):
        made = made[0]
    if isinstance(made, dict):
        types.update(made)
    for mime, method in _METHODS.items():
        if mime not in types:
            made = _call(_method(value, method))
            if isinstance(made, tuple) and len(made) == 2:
                made = made[0]  # the other one is metadata
            if made is not None:
                types[mime] = made
    if isinstance(value, (list, dict)) and "application/json" not in types:
        try:
            types["application/json"] = strict_json(value)
        except ValueError:
            pass
    if _is(value, "pandas", "DataFrame"):
        types.setdefault("e2b/data", _columns(value))
    if _is(value, "matplotlib.figure", "Figure"):
        types.setdefault("image/png", _png(value))
        types.setdefault("e2b/chart", kernel_charts.chart(value))  # drawing has made its ticks
    if "text/plain" not in types:
        types["text/plain"] = kernel_pretty.pretty(value)
    return types


def result(types, main):
    """Returns the response line for representations by MIME type."""
    line = {"type": "result"}
    extra = {}
    for mime, data in types.items():
        if data is None:
            continue
        data = clean(data)
        field = _FIELDS.get(mime)
        if field is None:
            extra[mime] = data
        elif field == "text":
            line[field] = kernel_pretty.unquoted(str(data))
        else:
            line[field] = data
    line["extra"] = extra
    line["is_main_result"] = main
    return line


def _method(value, name):
    """Returns the display method of value with that name, or None."""
    if isinstance(value, type):
        return None  # a class has the methods of its instances
    try:
        if getattr(value, "_a_name_that_no_object_has_", None) is not None:
            return None  # has every name, like a mock: that means nothing
        method = getattr(value, name, None)
    except Exception:  # whatever a __getattr__ raises
        return None
    return method if callable(method) else None


def _call(method, **args):
    """Calls a display method. One that fails says so on stderr and gives None."""
    if method is None:
        return None
    try:
        return method(**args)
    except NotImplementedError:
        return None
    except Exception:
        traceback.print_exc()
        return None


def _is(value, module, name):
    """Reports whether value is of a class in a module that may not be there."""
    return isinstance(value, getattr(sys.modules.get(module), name, ()))


def _png(figure):
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", bbox_inches="tight", dpi=figure.dpi)
    return buffer.getvalue()


def _columns(frame):
    """Returns the columns of a DataFrame as lists."""
    return {str(name): clean(frame.iloc[:, i].tolist()) for i, name in enumerate(frame.columns)}


def clean(value):
    """Returns value as something that JSON can express."""
    if value is None or isinstance(value, (bool, int)):
        return value if type(value) in (type(None), bool, int) else int(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else repr(float(value))
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, dict):
        return {str(key): clean(element) for key, element in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [clean(element) for element in value]
    return str(value)


def strict_json(value, depth=0):
    """Returns what the "json" field of a value holds. ValueError if it cannot hold it.

    The rules are those of the orjson package: keys become strings, a number that
    is not finite becomes null, and whole numbers have at most 64 bits.
    """
    if depth > 254:
        raise ValueError("too deep")
    if value is None or value is True or value is False:
        return value
    if isinstance(value, enum.Enum):
        return strict_json(value.value, depth + 1)
    if isinstance(value, str):
        value.encode("utf-8")
        return str(value)
    if isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 64:
            raise ValueError("more than 64 bits")
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if _is(value, "uuid", "UUID"):
        return str(value)
    if isinstance(value, dict):
        return {_key(key): strict_json(element, depth + 1) for key, element in value.items()}
    if isinstance(value, (list, tuple)):
        return [strict_json(element, depth + 1) for element in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: strict_json(getattr(value, field.name), depth + 1)
            for field in dataclasses.fields(value)
            if not field.name.startswith("_")
        }
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return strict_json(value.tolist(), depth + 1)
    raise ValueError("no JSON for " + type(value).__name__)


def _key(key):
    key = strict_json(key)
    if isinstance(key, str):
        return key
    if key is None or key is True or key is False:
        return {None: "null", True: "true", False: "false"}[key]
    if isinstance(key, (int, float)):
        return repr(key)
    raise ValueError("not a key")
