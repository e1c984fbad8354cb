"""One file or folder a published system; each registers a function from Graph and Device to FusionPlan.

Importing this package registers all of them with ``fuse.strategy``, in the order they were published. A strategy of
your own is one more decorated function, from anywhere.
"""

# isort: off
from . import none, xla, fs18, fs20, astitch, kitsune, auto

__all__ = ["astitch", "auto", "fs18", "fs20", "kitsune", "none", "xla"]
