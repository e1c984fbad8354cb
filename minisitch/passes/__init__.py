"""What makes a plain kernel fast: one file, one pass. Each is optional; what they make is verified.

Importing this package registers all of them, by ``registry.kernel_pass`` or
``plan_pass``. So a new file here also needs a name in the import below. A pass of your own is one
more decorated function, in any module.
"""

# isort: off
from . import (keep_in_output, share_memory, share_row_values, vectorize, column_sweep,
               tile_transpose, block_totals, nest_loops, cut_loops, windows, batch_rows)

__all__ = ["batch_rows", "block_totals", "column_sweep", "cut_loops", "keep_in_output",
           "nest_loops", "share_memory", "share_row_values",
           "tile_transpose", "vectorize", "windows"]
