"""One file a published system; each registers a function from Graph and Device to FusionPlan.

Importing this package registers all of them with ``fuse.strategy``. A strategy of your own is one
more decorated function, from anywhere.
"""

from . import astitch, fs20, none, xla

__all__ = ["astitch", "fs20", "none", "xla"]
