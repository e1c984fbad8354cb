"""The performance library with measured prices (FusionStitching 2018, section 4.3).

In:  an ``Entry`` and a function that measures it. Out: microseconds, from a file if known.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..runtime.store import replace
from ..strategies.fs18.library import Entry

VERSION = 2  # of the stored file


@dataclass
class Library:
    """Prices measured on this machine, kept in a file that several processes may share.

    The file is always replaced as a whole, and read again before that. So no process sees half of a
    file. Two writers at the same moment may lose a price.
    """

    path: Path | None
    measure: Callable[[Entry], float]
    hits: int = 0
    misses: int = 0

    def __post_init__(self) -> None:
        self.prices = self._stored()

    def look_up(self, entry: Entry) -> float:
        """The stored price, or a new measurement, which is then stored."""
        if entry.key in self.prices:
            self.hits += 1
        else:
            self.misses += 1
            self.prices[entry.key] = self.measure(entry)
        return self.prices[entry.key]

    def save(self) -> None:
        """Write all prices, with those that others wrote meanwhile. Disk errors are ignored."""
        stored = self._stored()
        self.prices = stored | self.prices
        if self.path is not None and self.prices != stored:
            replace(self.path, json.dumps({"version": VERSION, "us": dict(sorted(self.prices.items()))}, indent=0).encode())

    def _stored(self) -> dict[str, float]:
        """The prices in the file. Empty if it is missing, damaged, or of another version."""
        try:
            held = json.loads(self.path.read_text(encoding="utf-8")) if self.path else {}
            return {str(k): float(v) for k, v in held["us"].items()} if held.get("version") == VERSION else {}
        except (OSError, ValueError, AttributeError, KeyError, TypeError):
            return {}
