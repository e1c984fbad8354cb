"""Operations of FusionStitching 2018's performance library, as measured on this machine (section 4.3 there).

In:  an ``Entry`` and a function that measures it. Out: microseconds, from the file if they are known.
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
    """Prices measured on this machine's processor, kept in a file that several processes may share.

    A file is replaced whole, never written into, and read again before it is replaced: nothing half-written is seen,
    and two writers lose no more than a price that both were about to store at once.
    """

    path: Path | None
    measure: Callable[[Entry], float]
    hits: int = 0
    misses: int = 0

    def __post_init__(self) -> None:
        self.prices = self._stored()

    def look_up(self, entry: Entry) -> float:
        """The stored price, else the measured one, stored."""
        if entry.key in self.prices:
            self.hits += 1
        else:
            self.misses += 1
            self.prices[entry.key] = self.measure(entry)
        return self.prices[entry.key]

    def save(self) -> None:
        """Write what is known beside what others wrote meanwhile. A folder that cannot be written keeps nothing."""
        stored = self._stored()
        self.prices = stored | self.prices
        if self.path is not None and self.prices != stored:
            replace(self.path, json.dumps({"version": VERSION, "us": dict(sorted(self.prices.items()))}, indent=0).encode())

    def _stored(self) -> dict[str, float]:
        """What the file holds; nothing if there is none, or it is of another version or damaged."""
        try:
            held = json.loads(self.path.read_text(encoding="utf-8")) if self.path else {}
            return {str(k): float(v) for k, v in held["us"].items()} if held.get("version") == VERSION else {}
        except (OSError, ValueError, AttributeError, KeyError, TypeError):
            return {}
