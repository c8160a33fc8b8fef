"""First code of a kernel process: makes the other kernel_* modules importable.

The process gets the sources of all modules over its request pipe, so nothing is
written to the sandbox's disk. Runs with SOURCES (name -> source) and PATH, which
sys.path is to be when all is imported, in its globals.
"""

import sys

if sys.version_info < (3, 8):
    sys.exit("a Python kernel needs Python 3.8 or newer, this is %d.%d" % sys.version_info[:2])

import importlib.abc
import importlib.util
import types


class SourceFinder(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Finds and loads the modules whose sources it was given."""

    def __init__(self, sources):
        self.sources = sources

    def find_spec(self, name, path=None, target=None):
        if name in self.sources:
            return importlib.util.spec_from_loader(name, self, origin="<%s>" % name)
        return None

    def get_source(self, name):
        return self.sources[name]

    def exec_module(self, module):
        name = module.__name__
        exec(compile(self.sources[name], "<%s>" % name, "exec"), module.__dict__)


sys.meta_path.insert(0, SourceFinder(SOURCES))
sys.argv[:] = [""]

# The user's code gets a __main__ of its own, so that this one's names are not in
# it. The old module stays referenced: the functions above still need its globals.
_boot = sys.modules["__main__"]
sys.modules["__main__"] = types.ModuleType("__main__")

import kernel_main

sys.path[:] = PATH
kernel_main.main()
