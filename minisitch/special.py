"""``erf`` for the reference executor: SciPy's when it is installed, else ours.

NumPy has no ``erf``; the exact GELU needs one. In: a real array. Out: the same shape and dtype.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np


@functools.cache
def _float64_erf() -> Callable[[np.ndarray], Any]:
    """Looked up at the first use: importing SciPy takes longer than importing all of this package."""
    try:
        return importlib.import_module("scipy.special").erf
    except ImportError:
        return np.vectorize(math.erf, otypes=[np.float64])


def erf(x: Any) -> np.ndarray:
    """Error function of each element; float16 and float32 are computed in float64 and rounded once."""
    x = np.asarray(x)
    return np.array(x, copy=True) if x.size == 0 else _float64_erf()(np.asarray(x, dtype=np.float64)).astype(x.dtype)
