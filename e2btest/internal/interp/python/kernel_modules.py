"""Makes packages that expect a notebook find one.

IPython.display is what code written for notebooks imports to show things. Where
IPython is installed, its display functions are directed to the kernel; where it
is not, kernel_display stands in for the names that are used most. Matplotlib,
where it is installed, gets a backend that shows figures as results.
"""

import importlib.abc
import importlib.machinery
import os
import sys
import types

# The modules in which IPython, depending on its version, defines display.
_DISPLAY_MODULES = ("IPython.core.display_functions", "IPython.core.display")


def install(kernel):
    sys.meta_path.insert(0, _Hooks(kernel))
    sys.meta_path.append(_StandIn())


class _Hooks(importlib.abc.MetaPathFinder):
    """Adapts some modules right after they have been imported."""

    def __init__(self, kernel):
        self._hooks = dict.fromkeys(_DISPLAY_MODULES, lambda module: _direct_display(module, kernel))
        self._hooks["matplotlib"] = _select_backend

    def find_spec(self, name, path=None, target=None):
        hook = self._hooks.get(name)
        if hook is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            hook(module)

        spec.loader.exec_module = exec_module
        return spec


def _direct_display(module, kernel):
    if hasattr(module, "display"):
        module.display = kernel.display
    if hasattr(module, "publish_display_data"):
        module.publish_display_data = lambda data, *args, **kwargs: kernel.display(data, raw=True)
    if hasattr(module, "clear_output"):
        module.clear_output = lambda wait=False: None


def _select_backend(matplotlib):
    if not os.environ.get("MPLBACKEND"):
        matplotlib.rcParams["backend"] = "module://kernel_figures"


def flush_figures():
    """Shows the figures that are open, at the end of a cell."""
    figures = sys.modules.get("kernel_figures")
    if figures is not None:
        figures.show()


class _StandIn(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Comes last, so that it stands in only for an IPython that is not installed."""

    _names = ("IPython", "IPython.display", "IPython.core", "IPython.core.display")

    def find_spec(self, name, path=None, target=None):
        if name not in self._names:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=name in ("IPython", "IPython.core"))

    def create_module(self, spec):
        return types.ModuleType(spec.name)

    def exec_module(self, module):
        import kernel_display

        if module.__name__ == "IPython":
            module.get_ipython = lambda: None
            module.display = importlib.import_module("IPython.display")
        elif module.__name__ != "IPython.core":
            for name in kernel_display.__all__:
                setattr(module, name, getattr(kernel_display, name))
            module.__all__ = kernel_display.__all__
