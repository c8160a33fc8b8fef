"""What !commands and magics do. kernel_source turns them into calls of these."""

import codecs
import os
import re
import select
import subprocess
import sys
import time

from kernel_errors import UsageError


class Exit:
    """exit and quit: the kernel ends after the cell that calls them."""

    def __init__(self, kernel):
        self._kernel = kernel

    def __repr__(self):
        return "exit"

    def __call__(self, code=None):
        self._kernel.exiting = True


class Magics:
    def __init__(self, kernel):
        self._kernel = kernel

    # !command

    def system(self, command):
        """Runs a shell command and prints what it prints, stderr included."""
        status = self._run_shell(self._expanded(command))
        self._kernel.namespace["_exit_code"] = status

    def getoutput(self, command):
        """Runs a shell command and returns the lines that it prints, stderr included."""
        done = subprocess.run(
            ["/bin/sh", "-c", self._expanded(command)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        return done.stdout.decode("utf-8", "replace").splitlines()

    def _run_shell(self, command):
        # On a terminal, like a notebook: programs show progress, lines end in \r\n.
        try:
            terminal, output = os.openpty()
        except OSError:  # there are none in this sandbox
            terminal, output = os.pipe()
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        try:
            try:
                shell = subprocess.Popen(
                    ["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                )
            finally:
                os.close(output)
            with _Ended(shell):
                while True:
                    if not select.select([terminal], [], [], 0.05)[0]:
                        if shell.poll() is not None:
                            break  # what it left in the background may print on
                        continue
                    try:
                        data = os.read(terminal, 1 << 16)
                    except OSError:  # how a terminal tells that nobody has it open
                        break
                    if not data:
                        break
                    sys.stdout.write(decoder.decode(data))
                return shell.wait()
        finally:
            os.close(terminal)

    def _expanded(self, command):
        """Returns command with {expression} and $name replaced by their values.

        Left as it is if one of them has no value: then it is the shell's.
        """
        namespace = self._kernel.namespace

        def value(match):
            if match.group("dollars"):
                return "$"
            if match.group("name"):
                name = match.group("name")
                return str(namespace[name]) if name in namespace else match.group()
            return str(eval(match.group("expression"), namespace))

        try:
            return _VARIABLE.sub(value, command)
        except Exception:
            return command

    # %magic

    def line_magic(self, name, arguments):
        run = getattr(self, "_line_" + name, None)
        if run is None:
            raise UsageError("Line magic function `%%%s` not found." % name)
        return run(arguments)

    def _line_pip(self, arguments):
        self._run_shell("'%s' -m pip %s" % (sys.executable.replace("'", "'\\''"), self._expanded(arguments)))

    def _line_cd(self, arguments):
        os.chdir(os.path.expanduser(self._expanded(arguments) or "~"))
        print(os.getcwd())

    def _line_pwd(self, arguments):
        return os.getcwd()

    def _line_env(self, arguments):
        if not arguments:
            return dict(os.environ)
        name, equals, value = arguments.partition("=")
        if not equals:
            name, _, value = arguments.partition(" ")
        name, value = name.strip(), self._expanded(value.strip())
        if not value and not equals:
            return os.environ[name]
        os.environ[name] = value
        print("env: %s=%s" % (name, value))

    def _line_matplotlib(self, arguments):
        """Figures are shown inline whatever the arguments."""

    def _line_time(self, arguments):
        namespace = self._kernel.namespace
        with _Timed():
            try:
                code = compile(arguments, "<timed exec>", "eval")
            except SyntaxError:
                exec(compile(arguments, "<timed exec>", "exec"), namespace)
                return None
            return eval(code, namespace)

    # %%magic

    async def run_cell(self, name, arguments, body):
        run = getattr(self, "_cell_" + name, None)
        if run is None:
            raise UsageError("Cell magic `%%%%%s` not found." % name)
        await run(arguments, body)

    async def _cell_bash(self, arguments, body):
        self._run_script(["bash"] + arguments.split(), body)

    async def _cell_sh(self, arguments, body):
        self._run_script(["sh"] + arguments.split(), body)

    async def _cell_time(self, arguments, body):
        with _Timed():
            await self._kernel.run_source(body)

    async def _cell_writefile(self, arguments, body):
        append = arguments.startswith("-a ")
        path = os.path.expanduser(arguments[3:].strip() if append else arguments.strip())
        if not path:
            raise UsageError("%%writefile: the name of a file is missing")
        print(("Appending to %s" if append else "Overwriting %s" if os.path.exists(path) else "Writing %s") % path)
        with open(path, "a" if append else "w", encoding="utf-8") as file:
            file.write(body)

    def _run_script(self, argv, body):
        script = body.encode("utf-8")
        # It writes on descriptors 1 and 2, which are sent like what Python prints.
        process = subprocess.Popen(argv, stdin=subprocess.PIPE)
        with _Ended(process):
            process.communicate(script)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, script)


_VARIABLE = re.compile(r"(?P<dollars>\$\$)|\$(?P<name>[A-Za-z_]\w*)|(?<!\$)\{(?P<expression>[^{}]+)\}")


class _Ended:
    """Sees to it that a process is not left running by an exception."""

    def __init__(self, process):
        self._process = process

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind is None or self._process.poll() is not None:
            return
        try:
            # An interrupt has reached it too: it is in the same process group.
            self._process.wait(1 if issubclass(kind, KeyboardInterrupt) else 0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class _Timed:
    """Prints how long the block took."""

    def __enter__(self):
        self._wall, self._cpu = time.perf_counter(), os.times()

    def __exit__(self, kind, value, trace):
        wall, cpu = time.perf_counter() - self._wall, os.times()
        user, system = cpu.user - self._cpu.user, cpu.system - self._cpu.system
        print("CPU times: user %s, sys: %s, total: %s" % (_span(user), _span(system), _span(user + system)))
        print("Wall time: %s" % _span(wall))


def _span(seconds):
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "µs")):
        if seconds * factor >= 1:
            return "%.3g %s" % (seconds * factor, unit)
    return "%.3g ns" % (seconds * 1e9)
