"""Texts of exceptions, in the manner of an interactive Python."""

import linecache
import os
import traceback

_WIDTH = 75
_CONTEXT = 2  # lines before and after the one that failed
_FRAMES = 40  # of a traceback; the middle of a longer one is left out
_LONG = "Traceback (most recent call last)"


class UsageError(Exception):
    """A magic that does not exist or was used wrongly."""


class StdinNotImplementedError(RuntimeError):
    """Code asked for input, which nobody could give."""


def value_of(error):
    """Returns str(error), whatever the error's own __str__ does."""
    try:
        return str(error)
    except Exception as failure:
        return "<exception str() failed: %s>" % type(failure).__name__


def format_error(error, cells):
    """Returns the traceback of error. cells gives the number of a cell by its file name."""
    name = type(error).__name__
    if isinstance(error, SystemExit):
        return "An exception has occurred, use %%tb to see the full traceback.\n%s: %s\n" % (name, value_of(error))
    frames = _frames(error)
    if isinstance(error, SyntaxError) and not frames:
        return _syntax(error, cells)
    # The parts are joined without separators, as the real server does.
    return "-" * _WIDTH + "".join(_chain(error, cells, set()))


def _chain(error, cells, seen):
    seen.add(id(error))
    parts = []
    cause, context = error.__cause__, error.__context__
    if cause is not None and id(cause) not in seen:
        parts += _chain(cause, cells, seen)
        parts.append("\nThe above exception was the direct cause of the following exception:\n\n")
    elif context is not None and not error.__suppress_context__ and id(context) not in seen:
        parts += _chain(context, cells, seen)
        parts.append("\nDuring handling of the above exception, another exception occurred:\n\n")
    name = type(error).__name__
    parts.append(name + _LONG.rjust(_WIDTH - len(name)))
    frames = _frames(error)
    if len(frames) > _FRAMES:
        half = _FRAMES // 2
        skipped = "[... skipping %d frames ...]\n" % (len(frames) - 2 * half)
        parts += [_frame(frame, line, cells) for frame, line in frames[:half]]
        parts.append(skipped)
        parts += [_frame(frame, line, cells) for frame, line in frames[-half:]]
    else:
        parts += [_frame(frame, line, cells) for frame, line in frames]
    if isinstance(error, SyntaxError):
        parts.append(_syntax(error, cells))
    else:
        parts.append("%s: %s" % (name, value_of(error)))
    for note in getattr(error, "__notes__", ()):
        parts.append("\n" + str(note))
    for inner in getattr(error, "exceptions", ()):
        if isinstance(inner, BaseException):
            parts.append("\n" + "".join(traceback.format_exception(type(inner), inner, inner.__traceback__)))
    return parts


def _frames(error):
    """Returns the (frame, line) pairs of error's traceback that are not the kernel's own."""
    frames = []
    entry = error.__traceback__
    while entry is not None:
        if not entry.tb_frame.f_code.co_filename.startswith("<kernel_"):
            frames.append((entry.tb_frame, entry.tb_lineno))
        entry = entry.tb_next
    return frames


def _frame(frame, number, cells):
    code = frame.f_code
    filename = code.co_filename
    place = _place(filename, number, cells)
    if code.co_name != "<module>":
        count = code.co_argcount + code.co_kwonlyargcount
        arguments = list(code.co_varnames[:count])
        for flag, star in ((0x04, "*"), (0x08, "**")):  # CO_VARARGS, CO_VARKEYWORDS
            if code.co_flags & flag:
                arguments.append(star + code.co_varnames[count])
                count += 1
        place += ", in %s(%s)" % (getattr(code, "co_qualname", code.co_name), ", ".join(arguments))
    source = linecache.getlines(filename, frame.f_globals)
    shown = [place]
    if 0 < number <= len(source):
        before = [i for i in range(max(number - 4, 1), number) if source[i - 1].strip()][-_CONTEXT:]
        after = [i for i in range(number + 1, min(number + 4, len(source)) + 1) if source[i - 1].strip()][:_CONTEXT]
        for i in before + [number] + after:
            text = source[i - 1].rstrip()
            if i == number:
                shown.append("%s> %d %s" % ("-" * max(5 - len(str(i)), 0), i, text))
            else:
                shown.append("%7d %s" % (i, text))
    return "\n".join(shown) + "\n"


def _place(filename, number, cells):
    if filename in cells:
        return "Cell In[%d], line %s" % (cells[filename], number)
    return "File %s:%s" % (_home(filename), number)


def _home(filename):
    home = os.path.expanduser("~")
    if home not in ("~", "/") and filename.startswith(home + os.sep):
        return "~" + filename[len(home):]
    return filename


def _syntax(error, cells):
    name = type(error).__name__
    lines = ["  " + _place(error.filename or "<unknown>", error.lineno, cells)]
    if error.text:
        text = error.text.rstrip("\n")
        stripped = text.lstrip()
        lines.append("    " + stripped)
        if error.offset:
            lines.append("    " + " " * max(error.offset - 1 - (len(text) - len(stripped)), 0) + "^")
    lines.append("%s: %s\n" % (name, error.msg))
    return "\n".join(lines)
