"""The pipes between a kernel and the program that started it.

    requests  read   one JSON object per line: {"run": n, ...} or {"interrupt": n}
    events    write  one JSON object per line; if it has a "size", so many bytes
                     follow, which are one complete line of the HTTP response
    outputs   read   the far ends of file descriptors 1 and 2, on which child
                     processes and C code write

Two threads serve them. The main thread runs the user's code and can be struck by
a KeyboardInterrupt between any two bytecodes, so all that it does here is to put
things into a queue, which is atomic: it can neither tear a message nor leave a
lock behind.
"""

import codecs
import datetime
import io
import json
import os
import queue
import select
import signal
import threading
import time

# Texts that are waiting to be written are joined up to this many characters.
MERGE = 1 << 16
# More waiting items than this, and whoever prints waits for the writer.
BACKLOG = 1000
# A child process that prints takes longer than this to start and end, so there is
# no need to look for its output more often.
CHILD_TIME = 0.0005


class Pipes:
    def __init__(self, requests, events, outputs):
        """outputs maps "stdout" and "stderr" to the ends to read."""
        self.cell = 0  # number of the cell that output belongs to; 0: output is dropped
        self.forked = False  # in a child that user code forked off
        self._requests = requests
        self._events = events
        self._outputs = {fd: (name, codecs.getincrementaldecoder("utf-8")("replace")) for name, fd in outputs.items()}
        self._queue = queue.SimpleQueue()
        self._wake_read, self._wake_write = os.pipe()
        self._waiting = queue.SimpleQueue()  # events of settle calls
        self._looked = 0.0  # when output of children was last looked for
        self._reading = False  # some of it may be in no pipe any more, and not in the queue yet
        self._poll = select.poll()
        for fd in self._outputs:
            os.set_blocking(fd, False)
            self._poll.register(fd, select.POLLIN)
        for fd in (requests, events, *self._outputs):
            os.set_inheritable(fd, False)
        os.register_at_fork(after_in_child=self._after_fork)

    def start(self, handle, remind):
        """Starts the threads.

        The one that reads calls handle with each decoded request, and now and then
        remind, which returns in how many milliseconds it wants to be called again
        at the latest, or None.
        """
        for loop in (self._write_loop, lambda: self._read_loop(handle, remind)):
            threading.Thread(target=self._guard, args=(loop,), daemon=True).start()

    # What any thread may call.

    def text(self, name, text):
        """Sends text printed on name ("stdout" or "stderr")."""
        if self.forked:
            self._write_all(1 if name == "stdout" else 2, text.encode("utf-8", "replace"))
            return
        if not text or not self.cell:
            return
        now = time.monotonic()
        if now - self._looked > CHILD_TIME:
            # What a child printed before this text has to be sent before it.
            self._looked = now
            if self._poll.poll(0) or self._reading:  # in this order
                self.settle()
        self._queue.put((self.cell, name, text))
        if len(text) > MERGE or self._queue.qsize() > BACKLOG:
            self.flush()

    def line(self, message):
        """Sends a response line of the current cell."""
        if self.cell and not self.forked:
            self.settle()
            self._queue.put((self.cell, None, json.dumps(message)))

    def control(self, **fields):
        """Sends an event that is for the other program itself."""
        self._queue.put((None, None, json.dumps(fields)))

    def flush(self):
        """Returns when everything that was sent before is in the pipe."""
        if not self.forked:
            written = threading.Event()
            self._queue.put(written)
            written.wait()

    def settle(self):
        """Returns when everything that children have printed is in the queue."""
        if not self.forked:
            done = threading.Event()
            self._waiting.put(done)
            os.write(self._wake_write, b"\0")
            done.wait()

    # The writer.

    def _write_loop(self):
        item = None
        while True:
            if item is None:
                item = self._queue.get()
            if isinstance(item, threading.Event):
                item.set()
                item = None
                continue
            (cell, name, text), item = item, None
            if name:
                parts, size = [text], len(text)
                while size < MERGE:
                    try:
                        item = self._queue.get_nowait()
                    except queue.Empty:
                        break
                    if isinstance(item, threading.Event) or item[:2] != (cell, name):
                        break
                    parts.append(item[2])
                    size += len(item[2])
                    item = None
                now = datetime.datetime.now(datetime.timezone.utc)
                text = json.dumps({
                    "type": name,
                    "text": "".join(parts),
                    "timestamp": now.isoformat(timespec="microseconds"),
                })
            data = text.encode("ascii") + b"\n"
            if cell is not None:
                data = b'{"seq": %d, "size": %d}\n' % (cell, len(data)) + data
            self._write_all(self._events, data)

    @staticmethod
    def _write_all(fd, data):
        view = memoryview(data).cast("B")
        while view:
            view = view[os.write(fd, view):]

    # The reader.

    def _read_loop(self, handle, remind):
        poll = select.poll()
        for fd in (self._requests, self._wake_read, *self._outputs):
            poll.register(fd, select.POLLIN)
        line = []
        while True:
            ready = {fd for fd, _ in poll.poll(remind())}
            waiting = []
            if self._wake_read in ready:
                os.read(self._wake_read, 4096)
                waiting = [self._waiting.get() for _ in range(self._waiting.qsize())]
            for fd in self._outputs:
                if waiting or fd in ready:
                    self._read_output(fd)
            for event in waiting:
                event.set()
            if self._requests in ready:
                data = os.read(self._requests, 1 << 16)
                if not data:
                    return  # the other program is gone
                *ends, rest = data.split(b"\n")
                for end in ends:
                    handle(json.loads(b"".join(line) + end))
                    line = []
                line.append(rest)

    def _read_output(self, fd):
        self._reading = True
        try:
            self._pass_output(fd)
        finally:
            self._reading = False

    def _pass_output(self, fd):
        try:
            # At most what a pipe holds: a child that never stops printing must not
            # keep a settle call waiting.
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return
        name, decoder = self._outputs[fd]
        text = decoder.decode(data)
        if text and self.cell:
            self._queue.put((self.cell, name, text))
            while self._queue.qsize() > BACKLOG:
                time.sleep(0.001)

    def _guard(self, loop):
        """Runs loop and ends the process after it, since a kernel without its pipes is of no use."""
        try:
            loop()
        finally:
            if not self.forked:
                if os.getpgrp() == os.getpid():
                    os.killpg(os.getpid(), signal.SIGKILL)
                os.kill(os.getpid(), signal.SIGKILL)

    def _after_fork(self):
        """Keeps a child that the user's code forked off away from the pipes."""
        self.forked = True
        for fd in (self._requests, self._events, self._wake_read, self._wake_write, *self._outputs):
            try:
                os.close(fd)
            except OSError:
                pass  # closed by the user's code


class Stream(io.TextIOBase):
    """sys.stdout or sys.stderr of a kernel."""

    encoding = "utf-8"
    errors = "replace"

    def __init__(self, pipes, name):
        self._pipes = pipes
        self._name = name
        self.name = "<%s>" % name
        self.buffer = RawStream(self)

    def fileno(self):
        return 1 if self._name == "stdout" else 2

    def isatty(self):
        return False

    def readable(self):
        return False

    def writable(self):
        return True

    def write(self, text):
        if not isinstance(text, str):
            raise TypeError("write() argument must be str, not %s" % type(text).__name__)
        self._pipes.text(self._name, text)
        return len(text)

    def flush(self):
        self._pipes.flush()


class RawStream(io.RawIOBase):
    """sys.stdout.buffer or sys.stderr.buffer: bytes, written like a child process does."""

    def __init__(self, stream):
        self._stream = stream

    def fileno(self):
        return self._stream.fileno()

    def writable(self):
        return True

    def write(self, data):
        # What children printed before it has to be sent before it.
        self._stream._pipes.settle()
        Pipes._write_all(self.fileno(), data)
        self._stream._pipes.settle()
        return len(data)
