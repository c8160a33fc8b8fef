"""The Matplotlib backend that shows figures as results."""

import builtins

from matplotlib._pylab_helpers import Gcf
from matplotlib.backend_bases import FigureManagerBase
from matplotlib.backends.backend_agg import FigureCanvasAgg


class FigureManager(FigureManagerBase):
    def show(self):
        _show(self)


class FigureCanvas(FigureCanvasAgg):
    manager_class = FigureManager


def show(*args, **kwargs):
    """Shows all open figures, and closes them."""
    for manager in Gcf.get_all_fig_managers():
        _show(manager)


def _show(manager):
    figure = manager.canvas.figure
    Gcf.destroy(manager.num)
    builtins.display(figure)
