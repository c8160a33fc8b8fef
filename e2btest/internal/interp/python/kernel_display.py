"""The parts of IPython.display that work without IPython: see kernel_modules."""

import builtins
import html
import json
import mimetypes
import os

__all__ = [
    "DisplayObject", "HTML", "IFrame", "Image", "JSON", "Javascript", "Latex", "Markdown", "Math", "Pretty", "SVG",
    "TextDisplayObject", "clear_output", "display", "publish_display_data", "update_display",
]


def display(*values, **options):
    return builtins.display(*values, **options)


def publish_display_data(data, metadata=None, **options):
    builtins.display(data, raw=True)


def update_display(value, display_id=None, **options):
    """Does nothing: a result cannot be changed once it is sent."""


def clear_output(wait=False):
    """Does nothing: a result cannot be taken back once it is sent."""


class DisplayObject:
    """Data of one MIME type, given as such or as the name of a file."""

    _binary = False

    def __init__(self, data=None, url=None, filename=None, metadata=None):
        if data is not None and not isinstance(data, (str, bytes)) and not self._takes(data):
            raise TypeError("%s expects text, got %r" % (type(self).__name__, data))
        self.data = data
        self.url = url
        self.filename = None if filename is None else os.fspath(filename)
        self.metadata = metadata or {}
        if data is None and self.filename is not None:
            self.reload()

    def _takes(self, data):
        return False

    def reload(self):
        if self.filename is not None:
            if self._binary:
                with open(self.filename, "rb") as file:
                    self.data = file.read()
            else:
                with open(self.filename, encoding="utf-8") as file:
                    self.data = file.read()

    def __repr__(self):
        return "<IPython.core.display.%s object>" % type(self).__name__

    def __str__(self):
        return str(self.data)


class TextDisplayObject(DisplayObject):
    pass


class Pretty(TextDisplayObject):
    def __repr__(self):
        return self.data


class HTML(TextDisplayObject):
    def _repr_html_(self):
        return self.data

    def __html__(self):
        return self.data


class Markdown(TextDisplayObject):
    def _repr_markdown_(self):
        return self.data


class Latex(TextDisplayObject):
    def _repr_latex_(self):
        return self.data


class Math(TextDisplayObject):
    def _repr_latex_(self):
        return "$\\displaystyle %s$" % self.data.strip("$")


class SVG(DisplayObject):
    def _repr_svg_(self):
        return self.data.decode("utf-8") if isinstance(self.data, bytes) else self.data


class Javascript(TextDisplayObject):
    def _repr_javascript_(self):
        return self.data


class JSON(DisplayObject):
    def __init__(self, data=None, url=None, filename=None, expanded=False, metadata=None, root="root", **options):
        super().__init__(data, url, filename, metadata)
        if isinstance(self.data, (str, bytes)):
            self.data = json.loads(self.data)

    def _takes(self, data):
        return True

    def _repr_json_(self):
        return self.data


class Image(DisplayObject):
    """A PNG, JPEG or GIF image."""

    _binary = True
    _signatures = ((b"\x89PNG", "png"), (b"\xff\xd8", "jpeg"), (b"GIF8", "gif"))

    def __init__(self, data=None, url=None, filename=None, format=None, embed=None, width=None, height=None,
                 retina=False, unconfined=False, metadata=None, alt=None):
        if isinstance(data, (str, os.PathLike)):  # the first argument may be a file or an address
            if str(data).startswith(("http:", "https:")):
                data, url = None, str(data)
            else:
                data, filename = None, data
        super().__init__(data, url, filename, metadata)
        self.width, self.height, self.alt = width, height, alt
        self.format = (format or self._guess()).lower().replace("jpg", "jpeg")

    def _guess(self):
        for start, name in self._signatures:
            if self.data is not None and self.data.startswith(start):
                return name
        kind, _ = mimetypes.guess_type(self.filename or self.url or "")
        return kind.partition("/")[2] if kind else "png"

    def _repr_html_(self):
        if self.data is not None:
            return None
        size = "".join(
            ' %s="%s"' % (name, html.escape(str(value)))
            for name, value in (("width", self.width), ("height", self.height), ("alt", self.alt))
            if value is not None
        )
        return '<img src="%s"%s/>' % (html.escape(self.url or ""), size)

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {} if self.data is None else {"image/" + self.format: self.data}


class IFrame:
    def __init__(self, src, width, height, **parameters):
        self.src, self.width, self.height = src, width, height

    def _repr_html_(self):
        return '<iframe width="%s" height="%s" src="%s" frameborder="0" allowfullscreen></iframe>' % (
            html.escape(str(self.width)), html.escape(str(self.height)), html.escape(str(self.src)),
        )
