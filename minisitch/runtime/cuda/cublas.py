"""Matrix products by cuBLAS, called as a C library.

In:  how two operands and a result lie in memory. Out: ``Gemm`` calls, which lack only addresses.

The library comes with Torch, CuPy, a CUDA toolkit, or a package of its own. cuBLAS expects columns,
and a row-major matrix is a transposed column-major one. So ``C = A @ B`` is computed as
``C' = B' @ A'``, without moving data. Sums of float16 are made in float32. float32 is not rounded
to TensorFloat-32, since NumPy does not do so.
"""

import ctypes
import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import DeviceError
from ...errors.forks import imported
from ..call import ArgumentView

INSTALL = "pip install nvidia-cublas"
TYPES = {"float32": (0, 68), "float64": (1, 70), "float16": (2, 68)}  # cudaDataType, compute type
PLAIN, TRANSPOSED, DEFAULT_ALGORITHM = 0, 1, -1


@functools.cache
def path() -> str:
    """The path of the library; empty if it is not installed."""
    try:
        pathfinder = imported("cuda.pathfinder")
        return str(pathfinder.load_nvidia_dynamic_lib("cublas").abs_path or "")
    except Exception:  # not installed, or incomplete: a tiled kernel of ours is used instead
        return ""


@dataclass(frozen=True)
class Gemm:
    """One cuBLAS call for a batch of products. Offsets are in bytes, strides in elements."""

    rows: int
    cols: int
    inner: int
    a: tuple[int, int, int, int]  # PLAIN or TRANSPOSED, leading dimension, batch stride, offset
    b: tuple[int, int, int, int]
    c: tuple[int, int, int]  # leading dimension, batch stride, offset
    count: int  # products in the batch


def gemms(a: ArgumentView, b: ArgumentView, c: ArgumentView) -> tuple[Gemm, ...] | None:
    """The calls for ``c = a @ b``. None if cuBLAS does not support the dtype or the strides."""
    if a.dtype.name not in TYPES or {a.dtype, b.dtype} != {c.dtype} or not a.shape[-1]:
        return None
    size = a.dtype.itemsize
    lies = [_lies(view) for view in (a, b, c)]
    if None in lies or lies[2][0] == TRANSPOSED:  # type: ignore[index]
        return None
    (a_order, a_lead), (b_order, b_lead), (_, c_lead) = lies  # type: ignore[misc]
    *rest, (count, *last) = batches(a, b, c) or [(1, 0, 0, 0)]
    found = []
    for where in itertools.product(*(range(n) for n, *_ in rest)):
        at = [view.offset + sum(i * axis[k] for i, axis in zip(where, rest, strict=True))
              for k, view in enumerate((a, b, c), 1)]
        found.append(Gemm(c.shape[-2], c.shape[-1], a.shape[-1],
                          (a_order, a_lead, last[0] // size, at[0]),
                          (b_order, b_lead, last[1] // size, at[1]),
                          (c_lead, last[2] // size, at[2]), count))
    return tuple(found)


def batches(a: ArgumentView, b: ArgumentView, c: ArgumentView) -> list[tuple[int, int, int, int]]:
    """The axes of a batch: the size of each, and its strides in a, b and c, in bytes.

    A stride is 0 if the axis is broadcast. Neighbouring axes with matching strides are joined.
    """
    axes: list[tuple[int, int, int, int]] = []
    for back in range(len(c.shape), 2, -1):
        size = c.shape[-back]
        steps = [view.strides[-back] if len(view.shape) >= back and view.shape[-back] != 1 else 0
                 for view in (a, b, c)]
        if size == 1:
            continue
        if axes and all(o == step * size for o, step in zip(axes[-1][1:], steps, strict=True)):
            axes[-1] = (axes[-1][0] * size, *steps)  # type: ignore[assignment]
        else:
            axes.append((size, *steps))  # type: ignore[arg-type]
    return axes


def _lies(view: ArgumentView) -> tuple[int, int] | None:
    """PLAIN or TRANSPOSED, and the leading dimension in elements; None if no axis is contiguous."""
    size, (rows, cols) = view.dtype.itemsize, view.shape[-2:]
    row, col = view.strides[-2:]
    orders = (PLAIN, col, row, cols, rows), (TRANSPOSED, row, col, rows, cols)
    for order, near, far, length, lines in orders:
        apart = lines == 1 or (far % size == 0 and far >= length * size)
        if (near == size or length == 1) and apart:
            return order, max(far // size if lines > 1 else length, length, 1)
    return None


class Cublas:
    """A cuBLAS handle for one thread and stream."""

    def __init__(self, stream: int) -> None:
        self.library = ctypes.CDLL(path())
        self.handle = ctypes.c_void_p()
        self._ask("cublasCreate_v2", ctypes.byref(self.handle))
        self._ask("cublasSetStream_v2", self.handle, ctypes.c_void_p(stream))

    def _ask(self, function: str, *arguments: Any) -> None:
        code = getattr(self.library, function)(*arguments)
        if code:
            raise DeviceError(f"{function} of cuBLAS failed with status {code}; {INSTALL} in the "
                              "release for the installed driver")

    def __call__(self, gemm: Gemm, dtype: str, addresses: Sequence[int]) -> None:
        """Put one call on the stream. ``addresses`` are those of a, b and c."""
        self._ask("cublasGemmStridedBatchedEx", *(self.handle, *_arguments(gemm, dtype, addresses)))


def _arguments(gemm: Gemm, dtype: str, addresses: Sequence[int]) -> Iterator[Any]:
    """The arguments of cublasGemmStridedBatchedEx after the handle: b before a (see above)."""
    kind, compute = TYPES[dtype]
    scalar = ctypes.c_double if compute == 70 else ctypes.c_float
    a_order, a_lead, a_step, a_offset = gemm.a
    b_order, b_lead, b_step, b_offset = gemm.b
    c_lead, c_step, c_offset = gemm.c
    yield from (b_order, a_order, gemm.cols, gemm.rows, gemm.inner, ctypes.byref(scalar(1)))
    yield from (ctypes.c_void_p(addresses[1] + b_offset), kind, b_lead, ctypes.c_longlong(b_step))
    yield from (ctypes.c_void_p(addresses[0] + a_offset), kind, a_lead, ctypes.c_longlong(a_step))
    yield ctypes.byref(scalar(0))
    yield from (ctypes.c_void_p(addresses[2] + c_offset), kind, c_lead, ctypes.c_longlong(c_step))
    yield from (gemm.count, compute, DEFAULT_ALGORITHM)
