"""The thread map of many shapes on several GPUs, for the page's sliders.

In:  ``stitch.mapping.map_rows``. Out: a short record for each shape and GPU.
"""

from typing import Any

from ...stitch.mapping import map_rows
from .small import GPUS

ROWS = (1, 2, 4, 16, 64, 159, 1024, 8192, 65_536, 750_000)
COLUMNS = (1, 7, 32, 33, 100, 256, 1000, 1025, 8192, 262_144)
SHOWN = ("toy", "v100", "h100")


FIELDS = ("blocks", "threads", "rows_per_block", "threads_per_row", "splits", "chunk", "rule", "why")


def thread_maps() -> dict[str, Any]:
    """For each GPU the maps of all ``rows`` and ``columns``, row by row."""
    found = {gpu: [map_rows(rows, columns, GPUS[gpu]) for rows in ROWS for columns in COLUMNS] for gpu in SHOWN}
    return {"rows": ROWS, "columns": COLUMNS,
            "gpus": {gpu: [{field: getattr(each, field) for field in FIELDS} for each in maps] for gpu, maps in found.items()}}
