"""A Python kernel: runs cells one after the other in one live namespace.

The main thread runs an event loop, as in a notebook: cells may await, and tasks
that a cell started go on between cells. The threads of kernel_pipes hand the
requests over to it.

How an execution is interrupted. The other program sends SIGINT to this process's
group, so that it reaches children and code that does not release the interpreter
lock, and then the request {"interrupt": n}. The signal is obeyed only while code
of a cell runs; at any other time it is dropped. The request makes up for a signal
that came before the code of the cell had begun, or so shortly before a system
call that the call did not notice: it names the cell, and the signal is repeated
until it is obeyed. No signal can come so late that it hits the next cell, because
the other program sends the next cell only after its signal, and the thread that
repeats it is the one that takes the next cell.
"""

import ast
import asyncio
import atexit
import builtins
import faulthandler
import getpass
import inspect
import linecache
import os
import signal
import sys
import threading
import time
import traceback
import zlib

import __future__
import kernel_errors
import kernel_magics
import kernel_modules
import kernel_pipes
import kernel_render
import kernel_source

_FUTURES = 0
for _name in __future__.all_feature_names:
    _FUTURES |= getattr(__future__, _name).compiler_flag


class Kernel:
    def __init__(self, pipes, loop):
        self.pipes = pipes
        self.loop = loop
        self.requests = asyncio.Queue()
        self.namespace = sys.modules["__main__"].__dict__
        self.exiting = False
        self.count = 1
        self.cells = {}  # file name of a cell -> its number
        self.magics = kernel_magics.Magics(self)
        self.flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        self.warned = False  # how to exit
        self.main_thread = threading.get_ident()

        # Cells by their number in the protocol; 0: none.
        self.armed = 0  # the one whose code runs
        self.cancelled = 0  # the last one that {"interrupt": n} named
        self.struck = 0  # the last one that a signal interrupted
        self.reminder = 0.0  # when to repeat the signal
        self.patience = 0.0  # how long to wait then until the next time
        self.task = None  # that runs the cell's code

        self.history = {"In": [""], "Out": {}, "_": "", "__": "", "___": ""}
        self.namespace.update(self.history, __builtins__=builtins)

    # Requests; called by a thread of kernel_pipes.

    def handle(self, request):
        if "interrupt" in request:
            self.cancelled = request["interrupt"]
            self.reminder = 0.0
            self.patience = 0.01
        else:
            self.loop.call_soon_threadsafe(self.requests.put_nowait, request)

    def remind(self):
        """Repeats the signal for a cell that has not obeyed it."""
        if not self.armed or self.armed != self.cancelled or self.armed == self.struck:
            return None
        if signal.getsignal(signal.SIGINT) != self.on_sigint:
            return None  # the code has a handler of its own, and got it
        wait = self.reminder - time.monotonic()
        if wait <= 0:
            signal.pthread_kill(self.main_thread, signal.SIGINT)
            wait = self.patience
            self.patience = min(2 * self.patience, 0.2)
            self.reminder = time.monotonic() + wait
        return max(wait * 1000, 1)

    # The main thread.

    def on_sigint(self, number, frame):
        if self.pipes.forked:
            raise KeyboardInterrupt
        if not self.armed:
            return
        self.struck = self.armed
        if asyncio.current_task(self.loop) is self.task:
            raise KeyboardInterrupt
        # The cell is waiting for something, and the event loop is no place to
        # raise an exception in.
        self.loop.call_soon_threadsafe(self.task.cancel)

    async def serve(self):
        while not self.exiting:
            await self.execute(await self.requests.get())

    async def execute(self, request):
        """Runs one cell. No KeyboardInterrupt is raised in here, only in self.task."""
        number, code = request["run"], request["code"]
        if "cwd" in request:
            try:
                os.chdir(request["cwd"])
            except OSError:
                pass  # as on the real server, which does not report it
        # The last cell's code may have changed it.
        signal.signal(signal.SIGINT, self.on_sigint)
        self.pipes.cell = number
        self.pipes.line({"type": "number_of_executions", "execution_count": self.count})
        # If the process dies, the other program knows by this whether code has run.
        self.pipes.flush()
        if code.strip():
            before = {name: os.environ.get(name) for name in request["env"]}
            before.update(request["after"])
            try:
                _set_variables(request["env"])
                self.task = self.loop.create_task(self.cell(number, code))
                await self.task
            except BaseException as error:  # a variable's name, or an interrupt after the cell's code
                self.armed = 0
                self.report(error)
            self.armed = 0
            _restore_variables(before)
            self.count += 1
        if self.pipes.forked:
            os._exit(0)  # a copy of the kernel has no reason to live on
        self.pipes.settle()
        self.pipes.cell = 0
        self.pipes.control(seq=number, end=True, exit=self.exiting)

    async def cell(self, number, code):
        """Runs the code of a cell and reports what comes of it."""
        self.armed = number
        try:
            if self.cancelled == number:
                raise KeyboardInterrupt
            await self.run(code)
        except BaseException as error:
            self.report(error)
        kernel_modules.flush_figures()
        self.armed = 0

    async def run(self, code):
        """Runs code and shows the value of its last expression."""
        self.history["In"].append(code)
        magic = kernel_source.cell_magic(code)
        if magic is not None:
            await self.magics.run_cell(*magic)
        else:
            await self.run_source(code)

    async def run_source(self, code):
        source = kernel_source.plain(code)
        digest = zlib.crc32(b"%d " % self.count + source.encode("utf-8", "replace"))
        filename = "/tmp/ipykernel_%d/%d.py" % (os.getpid(), digest)
        self.cells[filename] = self.count
        linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
        tree = compile(source, filename, "exec", ast.PyCF_ONLY_AST, True)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            last = ast.Expression(tree.body.pop().value)
        # All of it before any of it runs.
        codes = [compile(tree, filename, "exec", self.flags, True)]
        self.flags |= codes[0].co_flags & _FUTURES
        if last is not None:
            codes.append(compile(last, filename, "eval", self.flags, True))
        value = None
        for code in codes:
            value = eval(code, self.namespace)
            if code.co_flags & inspect.CO_COROUTINE:
                value = await value
        if isinstance(value, kernel_magics.Exit):
            value()
        elif value is not None and not kernel_source.silent(source):
            self.show(value)

    def show(self, value):
        """Sends value as the main result."""
        types = kernel_render.bundle(value)
        names = self.namespace
        if names.get("_") is self.history["_"]:
            # Not if the code has a use of its own for these names.
            self.history.update(_=value, __=self.history["_"], ___=self.history["__"])
            for name in ("_", "__", "___"):
                names[name] = self.history[name]
        names["_%d" % self.count] = self.history["Out"][self.count] = value
        if types is not None:
            self.pipes.line(kernel_render.result(types, True))

    def display(self, *values, raw=False, include=None, exclude=None, display_id=None, **ignored):
        """Shows values. The names of the arguments are those of IPython.display.display."""
        for value in values:
            types = value if raw else kernel_render.bundle(value)
            if types is None:
                continue
            self.pipes.line(kernel_render.result({
                mime: data for mime, data in types.items()
                if (not include or mime in include) and not (exclude and mime in exclude)
            }, False))

    def report(self, error):
        """Sends an exception."""
        name = type(error).__name__
        value = kernel_errors.value_of(error)
        if isinstance(error, asyncio.CancelledError) and self.struck == self.pipes.cell:
            name, value, error = "KeyboardInterrupt", "", KeyboardInterrupt().with_traceback(error.__traceback__)
        text = kernel_errors.format_error(error, self.cells)
        self.pipes.line({"type": "error", "name": name, "value": value, "traceback": text})
        if isinstance(error, SystemExit) and not self.warned:
            self.warned = True
            self.pipes.text("stderr", (
                "kernel_main.py:1: UserWarning: To exit: use 'exit', 'quit', or Ctrl-D.\n"
                "  warn(\"To exit: use 'exit', 'quit', or Ctrl-D.\", stacklevel=1)\n"
            ))


def _set_variables(variables):
    for name, value in variables.items():
        # Some versions of Python take such names, and then cannot remove them.
        if not name or "=" in name or "\0" in name + value:
            raise ValueError("not a valid environment variable: %r" % name)
    os.environ.update({name: _pasted(value) for name, value in variables.items()})


def _pasted(value):
    """Returns what value is between the quotes of a Python string.

    That is where the real service puts it, so clients escape it, or are told.
    """
    literal = ast.parse("'%s'" % value, mode="eval").body
    if not isinstance(literal, ast.Constant) or not isinstance(literal.value, str):
        raise ValueError("the value of a variable ends its quotes")
    if "\0" in literal.value:
        raise ValueError("embedded null byte")
    return literal.value


def _restore_variables(variables):
    for name, value in variables.items():
        if value is not None:
            os.environ[name] = value
        elif name in os.environ:
            del os.environ[name]


def _no_input(prompt=""):
    raise kernel_errors.StdinNotImplementedError(
        "raw_input was called, but this frontend does not support input requests."
    )


def _no_password(prompt="Password: ", stream=None):
    raise kernel_errors.StdinNotImplementedError(
        "getpass was called, but this frontend does not support input requests."
    )


def main():
    pipes = kernel_pipes.Pipes(3, 4, {"stdout": 5, "stderr": 6})
    faulthandler.enable(2)
    sys.stdout = kernel_pipes.Stream(pipes, "stdout")
    sys.stderr = kernel_pipes.Stream(pipes, "stderr")
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    kernel = Kernel(pipes, loop)
    signal.signal(signal.SIGINT, kernel.on_sigint)
    builtins.input = _no_input
    builtins.display = kernel.display
    builtins.exit = builtins.quit = kernel_magics.Exit(kernel)
    setattr(builtins, kernel_source.TARGET, kernel.magics)
    getpass.getpass = _no_password
    kernel_modules.install(kernel)
    pipes.start(kernel.handle, kernel.remind)
    pipes.control(ready=True)

    status = 1
    try:
        _serve(loop, kernel)
        threading._shutdown()
        atexit._run_exitfuncs()
        pipes.flush()
        status = 0
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
    finally:
        # Not by returning: Python would stop the threads of the pipes and then wait
        # for them to flush its streams.
        os._exit(status)


def _serve(loop, kernel):
    serving = loop.create_task(kernel.serve())
    while not serving.done():
        try:
            loop.run_until_complete(serving)
        except (KeyboardInterrupt, SystemExit):
            pass  # of a task that the user's code started: the loop goes on
        except RuntimeError:
            if serving.done():
                raise
            # The user's code has stopped the loop.
