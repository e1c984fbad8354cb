"""One file a published system; each registers a function from Graph and Device to FusionPlan.

Importing this package registers all of them with ``fuse.strategy``. A strategy of your own is one
more decorated function, from anywhere.
"""

from . import astitch, none, xla

__all__ = ["astitch", "none", "xla"]
