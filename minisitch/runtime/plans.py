"""A plan that was decided once is not decided again: plans are kept on disk beside compiled kernels.

In:  a graph, a strategy's name, a device. Out: the strategy's plan, from the disk if it has been there before.

The key of a plan holds all that it was decided by: the graph's structure, the strategy, every figure of the device,
and the text of this package. What is kept is the patterns with their compositions, and the decisions, so ``explain``
tells the same. ``runtime/store.py`` says who may write entries; what is read is verified as any plan is.

Not kept: plans of strategies from outside the package (their text may change unseen), plans that took no time, plans
that rewrite their graph, and plans by measured prices (``calibrate.measured_operations`` refines them as it goes).
MINISITCH_PLANS=0 keeps none, MINISITCH_CACHE=0 neither plans nor kernels.

Before:  auto on an encoder of 286 nodes, 0.8 s        After, in the next process:  0.01 s
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pickle
import sys
import time
from pathlib import Path

import numpy as np

from ..device import Device
from ..errors import PlanError
from ..fuse import STRATEGIES, FusionPlan, verify_plan
from ..graph import Graph
from ..strategies.fs18.library import MEASURING
from ..strategies.regions import planned
from . import store

WORTH_KEEPING_S = 0.02
PACKAGE = Path(__file__).parent.parent


def plan_of(graph: Graph, strategy: str, device: Device) -> FusionPlan:
    """As ``regions.planned``, which is asked only where the disk has no plan."""
    folder = store.folder() if os.environ.get("MINISITCH_PLANS") not in ("0", "off") else None
    version = _version()
    if folder is None or not version or MEASURING or not _is_ours(strategy):
        return planned(graph, strategy, device)
    key = hashlib.sha256(repr((graph.structure, strategy, device, version)).encode()).hexdigest()
    known = _read(folder, f"{key}.plan", graph, strategy)
    if known is not None:
        return known
    began = time.perf_counter()
    plan = planned(graph, strategy, device)
    if time.perf_counter() - began >= WORTH_KEEPING_S and plan.graph is graph:
        store.write(folder, f"{key}.plan", pickle.dumps((plan.strategy, plan.patterns, plan.decisions)))
    return plan


def _read(folder: Path, name: str, graph: Graph, strategy: str) -> FusionPlan | None:
    content = store.read(folder, name)
    if content is None:
        return None
    with contextlib.suppress(PlanError):
        named, patterns, decisions = pickle.loads(content)
        return verify_plan(FusionPlan(graph, named, patterns, decisions))
    return None


def _is_ours(strategy: str) -> bool:
    """Whether a strategy, and so the text it decides by, belongs to this package."""
    module = getattr(STRATEGIES.get(strategy), "__module__", "")
    return module.partition(".")[0] == __name__.partition(".")[0]


@functools.cache
def _version() -> str:
    """What plans depend on besides their arguments: our text, and the versions below it; empty where no text is found.

    The text is known by the names, sizes and times of its files, as Python knows whether to compile it again: to read it all
    was a seventh of a first call.
    """
    files = [(str(file.relative_to(PACKAGE)), file.stat()) for file in sorted(PACKAGE.rglob("*.py"))]
    if not files:
        return ""
    text = hashlib.sha256(repr([(name, found.st_size, found.st_mtime_ns) for name, found in files]).encode())
    return f"{text.hexdigest()} {sys.version} {np.__version__}"
