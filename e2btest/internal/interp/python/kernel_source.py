"""What a notebook understands beyond Python: !commands, %line and %%cell magics."""

import ast
import io
import re
import tokenize

# Where calls that stand for a magic find their target: see kernel_main.
TARGET = "__kernel__"

_CELL_MAGIC = re.compile(r"\s*%%(\w+)[ \t]*(.*)")
_LINE_MAGIC = re.compile(r"%(\w+)\s*(.*)", re.DOTALL)
_ASSIGNMENT = re.compile(r"([\w.,\s\[\]'\"]+?)\s*=\s*([!%])(?!=)\s*(\S.*)", re.DOTALL)


def cell_magic(source):
    """Returns (name, arguments, body) if source is a cell magic, else None."""
    head, _, body = source.partition("\n")
    match = _CELL_MAGIC.fullmatch(head.rstrip())
    if match is None:
        return None
    return match.group(1), match.group(2), body


def plain(source):
    """Returns source as Python: magics become calls, a common indentation goes.

    Lines keep their numbers. Source that is Python as it stands is not touched.
    """
    source = _dedented(source)
    try:
        ast.parse(source)
        return source
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pass  # not Python as it stands, or not at all: compiling it will tell
    lines = source.split("\n")
    out = []
    state = _State()
    i = 0
    while i < len(lines):
        line = lines[i]
        i += 1
        call = None
        if state.at_start():
            full, end = line, i
            while full.endswith("\\") and end < len(lines):
                full = full[:-1] + lines[end]
                end += 1
            call = _call(full.strip())
        if call is None:
            out.append(line)
            state.feed(line)
            continue
        out.append(line[: len(line) - len(line.lstrip())] + call)
        out.extend([""] * (end - i))
        i = end
    return "\n".join(out)


def _call(line):
    """Returns the Python for one logical line that holds a magic, else None."""
    if line.startswith("!!"):
        return _target("getoutput", line[2:].strip())
    if line.startswith("!"):
        return _target("system", line[1:].strip())
    match = _LINE_MAGIC.fullmatch(line)
    if match:
        return _target("line_magic", match.group(1), match.group(2).strip())
    match = _ASSIGNMENT.fullmatch(line)
    if match and match.group(2) == "!":
        return "%s = %s" % (match.group(1), _target("getoutput", match.group(3).strip()))
    if match:
        magic = _LINE_MAGIC.fullmatch("%" + match.group(3))
        if magic:
            return "%s = %s" % (match.group(1), _target("line_magic", magic.group(1), magic.group(2).strip()))
    return None


def _target(name, *args):
    return "%s.%s(%s)" % (TARGET, name, ", ".join(map(repr, args)))


def _dedented(source):
    """Removes the indentation of the first line that is not blank from all lines."""
    for line in source.split("\n"):
        if line.strip():
            indent = line[: len(line) - len(line.lstrip())]
            break
    else:
        return source
    if not indent:
        return source
    return "\n".join(
        line[len(indent):] if line.startswith(indent) else line for line in source.split("\n")
    )


_TOKEN = re.compile(
    r"""
    (?P<comment>\#.*)
  | (?P<triple>'''|\"\"\")
  | (?P<string>'(?:\\.|[^'\\])*'?|"(?:\\.|[^"\\])*"?)
  | (?P<open>[(\[{])
  | (?P<close>[)\]}])
  | (?P<join>\\$)
  | (?P<other>.)
    """,
    re.VERBOSE,
)


class _State:
    """Knows whether a line is the first one of a statement."""

    def __init__(self):
        self.depth = 0  # of brackets
        self.quote = None  # of the triple-quoted string that is open
        self.joined = False  # by a backslash at the end of the line before

    def at_start(self):
        return self.depth == 0 and self.quote is None and not self.joined

    def feed(self, line):
        self.joined = False
        i = 0
        while i < len(line):
            if self.quote:
                if line[i] == "\\":
                    i += 2
                elif line.startswith(self.quote, i):
                    i += 3
                    self.quote = None
                else:
                    i += 1
                continue
            match = _TOKEN.match(line, i)
            i = match.end()
            if match.lastgroup == "triple":
                self.quote = match.group()
            elif match.lastgroup == "open":
                self.depth += 1
            elif match.lastgroup == "close":
                self.depth = max(self.depth - 1, 0)
            elif match.lastgroup == "join":
                self.joined = True


_BLANK = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def silent(source):
    """Reports whether the last statement ends with a semicolon, so that its value is not shown."""
    last = None
    if ";" in source:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type not in _BLANK:
                last = token
    return last is not None and last.exact_type == tokenize.SEMI
