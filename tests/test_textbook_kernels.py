"""Kernels as a textbook has them: the stepper accepts each under every seed, and the results are right."""

import numpy as np
import pytest

from minisitch.simt import step

# ruff: noqa: F821  cuda and np belong to the dialect

N = 64


def copy_grid_stride(x, y):
    for i in range(cuda.grid(1), x.shape[0], cuda.gridsize(1)):
        y[i] = x[i]


def saxpy(a, x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = a * x[i] + y[i]


def tree_sum(x, y):
    s = cuda.shared.array(N, np.float32)
    t = cuda.threadIdx.x
    s[t] = x[cuda.grid(1)]
    cuda.syncthreads()
    step = N // 2
    while step > 0:
        if t < step:
            s[t] += s[t + step]
        cuda.syncthreads()
        step //= 2
    if t == 0:
        y[cuda.blockIdx.x] = s[0]


def grid_wide_sum(x, part, y):
    t = cuda.grid(1)
    total = np.float32(0)
    for i in range(t, x.size, cuda.gridsize(1)):
        total += x[i]
    part[t] = total
    cuda.cg.this_grid().sync()
    if t == 0:
        whole = np.float32(0)
        for k in range(cuda.gridsize(1)):
            whole += part[k]
        y[0] = whole


def double_buffered_scan(x, y):
    now = cuda.shared.array(N, np.float32)
    then = cuda.shared.array(N, np.float32)
    t = cuda.threadIdx.x
    now[t] = x[t]
    cuda.syncthreads()
    offset = 1
    while offset < N:
        then[t] = now[t] + now[t - offset] if t >= offset else now[t]
        cuda.syncthreads()
        now, then = then, now
        offset *= 2
    y[t] = now[t]


def shuffle_scan(x, y):
    lane = cuda.laneid
    value = x[cuda.grid(1)]
    for offset in (1, 2, 4, 8, 16):
        other = cuda.shfl_up_sync(0xffffffff, value, offset)
        if lane >= offset:
            value += other
    y[cuda.grid(1)] = value


def tiled_product(a, b, c):
    tile_a = cuda.shared.array((16, 16), np.float32)
    tile_b = cuda.shared.array((16, 16), np.float32)
    col, row = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    total = np.float32(0)
    for first in range(0, a.shape[1], 16):
        tile_a[ty, tx] = a[row, first + tx] if row < a.shape[0] and first + tx < a.shape[1] else np.float32(0)
        tile_b[ty, tx] = b[first + ty, col] if col < b.shape[1] and first + ty < b.shape[0] else np.float32(0)
        cuda.syncthreads()
        for k in range(16):
            total += tile_a[ty, k] * tile_b[k, tx]
        cuda.syncthreads()
    if row < c.shape[0] and col < c.shape[1]:
        c[row, col] = total


def histogram(x, bins):
    mine = cuda.shared.array(9, np.int32)
    t = cuda.threadIdx.x
    if t < 9:
        mine[t] = 0
    cuda.syncthreads()
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        cuda.atomic.add(mine, x[i], 1)
    cuda.syncthreads()
    if t < 9:
        cuda.atomic.add(bins, t, mine[t])


def transpose_with_padding(x, y):
    tile = cuda.shared.array((8, 9), np.float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    col, row = cuda.grid(2)
    tile[ty, tx] = x[row, col]
    cuda.syncthreads()
    y[cuda.blockIdx.x * 8 + ty, cuda.blockIdx.y * 8 + tx] = tile[tx, ty]


def softmax_by_hand(x, y):
    s = cuda.shared.array(N, np.float32)
    t, row = cuda.threadIdx.x, cuda.blockIdx.x
    cols = x.shape[1]
    best = np.float32(-np.inf)
    for col in range(t, cols, N):
        best = max(best, x[row, col])
    s[t] = best
    cuda.syncthreads()
    for half in (32, 16, 8, 4, 2, 1):
        if t < half:
            s[t] = max(s[t], s[t + half])
        cuda.syncthreads()
    best = s[0]
    cuda.syncthreads()
    total = np.float32(0)
    for col in range(t, cols, N):
        total += math.exp(x[row, col] - best)
    s[t] = total
    cuda.syncthreads()
    for half in (32, 16, 8, 4, 2, 1):
        if t < half:
            s[t] += s[t + half]
        cuda.syncthreads()
    for col in range(t, cols, N):
        y[row, col] = math.exp(x[row, col] - best) / s[0]


def stencil_with_halo(x, y):
    s = cuda.shared.array(34, np.float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    n = x.size
    s[t + 1] = x[i] if i < n else np.float32(0)
    if t == 0:
        s[0] = x[i - 1] if i > 0 else np.float32(0)
    if t == 31:
        s[33] = x[i + 1] if i + 1 < n else np.float32(0)
    cuda.syncthreads()
    if i < n:
        y[i] = s[t] + s[t + 1] + s[t + 2]


def dot_by_atomics(x, y, out):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(out, 0, x[i] * y[i])


def any_and_all(x, y):
    t = cuda.threadIdx.x
    some = cuda.any_sync(0xffffffff, x[t] > 0)
    every = cuda.all_sync(0xffffffff, x[t] > 0)
    ballot = cuda.ballot_sync(0xffffffff, x[t] > 0)
    y[t] = some + 2 * every + 4 * (ballot >> t & 1)


def last_block_adds(x, part, ticket, y):
    s = cuda.shared.array(1, np.int32)
    if cuda.threadIdx.x == 0:
        part[cuda.blockIdx.x] = x[cuda.blockIdx.x]
        cuda.threadfence()
        s[0] = cuda.atomic.add(ticket, 0, 1)
        cuda.threadfence()
    cuda.syncthreads()
    if s[0] == cuda.gridDim.x - 1 and cuda.threadIdx.x == 0:
        total = np.float32(0)
        for k in range(cuda.gridDim.x):
            total += part[k]
        y[0] = total


def odd_even_sort(x):
    t = cuda.threadIdx.x
    for turn in range(2 * cuda.blockDim.x):
        i = 2 * t + turn % 2
        if i + 1 < x.size and x[i] > x[i + 1]:
            x[i], x[i + 1] = x[i + 1], x[i]
        cuda.syncthreads()


def row_sums_in_registers(x, y):
    mine = cuda.local.array(4, np.float32)
    row = cuda.grid(1)
    for k in range(4):
        mine[k] = x[row, k]
    y[row] = mine[0] + mine[1] + mine[2] + mine[3]


def floats(*shape):
    return np.random.default_rng(1).integers(-4, 5, shape).astype(np.float32) + np.float32(0.5)  # never zero


def zeros(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


X = floats(100)
A, B = floats(20, 33), floats(33, 18)
M = floats(3, 100)
CASES = {  # kernel: arrays, grid, block, inputs, then the last array's value
    copy_grid_stride: ([X, zeros(100)], 2, 32, [0], X),
    saxpy: ([np.float32(2), X, np.ones(100, np.float32)], 4, 32, [1, 2], 2 * X + 1),
    tree_sum: ([floats(128), zeros(2)], 2, N, [0], floats(128).reshape(2, N).sum(1)),
    grid_wide_sum: ([X, zeros(64), zeros(1)], 2, 32, [0], X.sum(keepdims=True)),
    double_buffered_scan: ([X[:N], zeros(N)], 1, N, [0], np.cumsum(X[:N])),
    shuffle_scan: ([X[:64], zeros(64)], 2, 32, [0], np.cumsum(X[:64].reshape(2, 32), axis=1).ravel()),
    tiled_product: ([A, B, zeros(20, 18)], (2, 2), (16, 16), [0, 1], A @ B),
    histogram: ([X.astype(np.int32) + 4, zeros(9, dtype=np.int32)], 2, 40, [0, 1], np.bincount(X.astype(np.int32) + 4, minlength=9)),
    transpose_with_padding: ([floats(16, 24), zeros(24, 16)], (3, 2), (8, 8), [0], floats(16, 24).T),
    softmax_by_hand: ([M, zeros(3, 100)], 3, N, [0], np.exp(M) / np.exp(M).sum(1, keepdims=True)),
    stencil_with_halo: ([X, zeros(100)], 4, 32, [0], np.convolve(X, [1, 1, 1], "same")),
    dot_by_atomics: ([X, X, zeros(1)], 4, 32, [0, 1, 2], (X * X).sum(keepdims=True)),
    any_and_all: ([X[:32], zeros(32, dtype=np.int32)], 1, 32, [0], 1 + 4 * (X[:32] > 0)),
    last_block_adds: ([X[:3], zeros(3), zeros(1, dtype=np.int32), zeros(1)], 3, 32, [0, 2], X[:3].sum(keepdims=True)),
    odd_even_sort: ([X[:16].copy()], 1, 8, [0], np.sort(X[:16])),
    row_sums_in_registers: ([floats(32, 4), zeros(32)], 1, 32, [0], floats(32, 4).sum(1)),
}


@pytest.mark.parametrize("kernel", CASES, ids=lambda kernel: kernel.__name__)
def test_a_textbook_kernel_is_accepted_and_right(kernel):
    arrays, grid, block, inputs, want = CASES[kernel]
    for seed in range(3):
        given = [np.ascontiguousarray(a).copy() if isinstance(a, np.ndarray) else a for a in arrays]
        step(kernel, given, grid, block, seed, inputs=inputs, outputs=[len(given) - 1])
        np.testing.assert_allclose(given[-1], want, rtol=1e-5)
