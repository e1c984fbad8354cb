"""``erf`` for the reference executor: SciPy's when it is installed, else ours.

NumPy has no ``erf``; the exact GELU needs one. In: a real array. Out: the same shape and dtype.
"""

from __future__ import annotations

import math

import numpy as np

try:
    from scipy.special import erf as _scipy_erf
except ImportError:
    _scipy_erf = None

_erf_each = np.vectorize(math.erf, otypes=[np.float64])


def erf(x):
    """Error function of each element; float16 and float32 are computed in float64 and rounded once."""
    x = np.asarray(x)
    wide = np.asarray(x, dtype=np.float64)
    if x.size == 0:
        return np.array(x, copy=True)
    return (_scipy_erf or _erf_each)(wide).astype(x.dtype)
