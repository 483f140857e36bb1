"""Plots of results, drawn by matplotlib's objects into files: no window, and no backend that the environment names."""

import os
import sys

# A notebook passes the name of its backend on to all commands, and where that is not installed, matplotlib cannot be
# imported. So it is imported without, and gets the name as matplotlib would take it, or none.
if "matplotlib" not in sys.modules and (named := os.environ.pop("MPLBACKEND", "")):
    import matplotlib

    try:
        matplotlib.rcParams["backend"] = named
    except ValueError:
        pass  # nor do the processes that are started from here get it
    else:
        os.environ["MPLBACKEND"] = named
