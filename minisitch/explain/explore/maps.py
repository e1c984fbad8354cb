"""The thread map of many shapes on several GPUs, for the page's sliders.

In:  ``stitch.mapping.map_rows``. Out: a short record for each shape and GPU.
"""

from typing import Any

from ...stitch.mapping import map_rows
from .small import GPUS

ROWS = (1, 2, 4, 16, 64, 159, 1024, 8192, 65_536, 750_000)
COLUMNS = (1, 7, 32, 33, 100, 256, 1000, 1025, 8192, 262_144)
SHOWN = ("toy", "v100", "h100")


def thread_maps() -> dict[str, Any]:
    """For each GPU the maps of all ``rows`` and ``columns``, row by row."""
    return {"rows": ROWS, "columns": COLUMNS, "gpus": {
        name: [_record(rows, columns, name) for rows in ROWS for columns in COLUMNS]
        for name in SHOWN}}


def _record(rows: int, columns: int, gpu: str) -> dict[str, Any]:
    found = map_rows(rows, columns, GPUS[gpu])
    return {"blocks": found.blocks, "threads": found.threads, "together": found.rows_per_block,
            "each": found.threads_per_row, "splits": found.splits, "chunk": found.chunk,
            "rule": found.rule, "why": found.why}
