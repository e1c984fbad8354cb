"""The strategies, one file or folder each. Each registers a function from graph to plan.

Importing this package registers all of them with ``fuse.strategy``, in the order of publication. A
strategy of your own is one more decorated function, in any module.
"""

# isort: off
from . import none, xla, fs18, fs20, astitch, kitsune, auto

__all__ = ["astitch", "auto", "fs18", "fs20", "kitsune", "none", "xla"]
