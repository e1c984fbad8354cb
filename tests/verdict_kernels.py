"""Right kernels of a course, for the stepper's verdicts: see ``test_right_verdicts.py``."""

from __future__ import annotations

from inspect import getsource

import numpy as np
from test_textbook_kernels import stencil_with_halo

FLOAT, INT = np.float32, np.int32


def ramp(*shape):
    """Small whole numbers, positive and negative."""
    return (np.arange(int(np.prod(shape)), dtype=FLOAT).reshape(shape) % 7) - 3


def zeros(*shape, d=FLOAT):
    return np.zeros(shape, d)


def unwritten(*shape, d=FLOAT):
    """What an output holds before the kernel writes it."""
    return np.full(shape, 77, d)


# name -> text, blocks, threads of a block, the arrays, what they hold afterwards, options of ``step``
RIGHT = {}


def right(name, text, grid, block, arrays, want, **options):
    RIGHT[name] = (text, grid, block, arrays, want, options)


right("grid barrier two phase", """
def k(x, p, y):
    g = cuda.cg.this_grid()
    i = cuda.grid(1)
    p[i] = x[i] * np.float32(2)
    g.sync()
    n = cuda.gridsize(1)
    y[i] = p[(i + 1) % n]
""", 4, 32, lambda: {"x": ramp(128), "p": unwritten(128), "y": unwritten(128)}, lambda a: {"y": np.roll(a["x"]*2, -1)})
right("three grid barriers swap", """
def k(a, b, y):
    i = cuda.grid(1)
    n = cuda.gridsize(1)
    grid = cuda.cg.this_grid()
    for r in range(3):
        b[i] = a[(i + 1) % n]
        grid.sync()
        a[i] = b[i] + np.float32(1)
        grid.sync()
    y[i] = a[i]
""", 2, 32, lambda: {"a": ramp(64), "b": unwritten(64), "y": unwritten(64)}, lambda a: {"y": np.roll(a["a"], -3)+3}, inputs=["a"])
right("last block ticket with fence", """
def k(x, part, ticket, y):
    s = cuda.shared.array(1, np.int32)
    t = cuda.threadIdx.x
    b = cuda.blockIdx.x
    v = x[cuda.grid(1)]
    for o in (16, 8, 4, 2, 1):
        v += cuda.shfl_down_sync(0xffffffff, v, o)
    if t == 0:
        part[b] = v
        cuda.threadfence()
        s[0] = cuda.atomic.add(ticket, 0, 1)
    cuda.syncthreads()
    if s[0] == cuda.gridDim.x - 1:
        cuda.threadfence()
        if t == 0:
            w = np.float32(0)
            for q in range(cuda.gridDim.x):
                w += part[q]
            y[0] = w
""", 4, 32, lambda: {"x": ramp(128), "part": unwritten(4), "ticket": zeros(1, d=INT), "y": unwritten(1)}, lambda a: {"y": np.array([a["x"].sum()], FLOAT)}, inputs=["x", "ticket"])
right("cas add float via ints", """
def k(x, y):
    i = cuda.grid(1)
    done = 0
    while done == 0:
        old = cuda.atomic.add(y, 0, 0)
        if cuda.atomic.cas(y, 0, old, old + x[i]) == old:
            done = 1
""", 2, 8, lambda: {"x": np.arange(16, dtype=INT), "y": zeros(1, d=INT)}, lambda a: {"y": np.array([120], INT)}, inputs=["x", "y"])
right("cas max", """
def k(x, y):
    i = cuda.grid(1)
    old = cuda.atomic.max(y, 0, -1)
    while old < x[i]:
        old = cuda.atomic.cas(y, 0, old, x[i])
""", 2, 8, lambda: {"x": (np.arange(16)*7%16).astype(INT), "y": zeros(1, d=INT)}, lambda a: {"y": np.array([15], INT)}, inputs=["x", "y"])
right("lock critical section with fences", """
def k(lock, c):
    if cuda.threadIdx.x == 0:
        while cuda.atomic.cas(lock, 0, 0, 1) != 0:
            pass
        cuda.threadfence()
        c[0] = c[0] + 1
        cuda.threadfence()
        cuda.atomic.exch(lock, 0, 0)
""", 5, 32, lambda: {"lock": zeros(1, d=INT), "c": zeros(1, d=INT)}, lambda a: {"c": np.array([5], INT)}, inputs=["lock", "c"])
right("ticket lock", """
def k(t, s, c):
    mine = cuda.atomic.add(t, 0, 1)
    while cuda.atomic.add(s, 0, 0) != mine:
        pass
    cuda.threadfence()
    c[0] = c[0] * 2 + 1
    cuda.threadfence()
    cuda.atomic.add(s, 0, 1)
""", 4, 1, lambda: {"t": zeros(1, d=INT), "s": zeros(1, d=INT), "c": zeros(1, d=INT)}, lambda a: {"c": np.array([15], INT)}, inputs=["t", "s", "c"])
right("double buffer tiles", """
def k(x, y):
    s = cuda.shared.array((2, 32), np.float32)
    t = cuda.threadIdx.x
    acc = np.float32(0)
    s[0, t] = x[t]
    cuda.syncthreads()
    for k in range(4):
        if k < 3:
            s[(k + 1) % 2, t] = x[(k + 1) * 32 + t]
        acc += s[k % 2, 31 - t]
        cuda.syncthreads()
    y[t] = acc
""", 1, 32, lambda: {"x": ramp(128), "y": unwritten(32)}, lambda a: {"y": a["x"].reshape(4, 32).sum(0)[::-1].copy()})
right("tree reduction odd n", """
def k(x, y):
    s = cuda.shared.array(128, np.float32)
    t = cuda.threadIdx.x
    n = cuda.blockDim.x
    s[t] = x[t]
    cuda.syncthreads()
    while n > 1:
        h = (n + 1) // 2
        if t + h < n:
            s[t] += s[t + h]
        cuda.syncthreads()
        n = h
    if t == 0:
        y[0] = s[0]
""", 1, 75, lambda: {"x": ramp(75), "y": unwritten(1)}, lambda a: {"y": np.array([a["x"].sum()], FLOAT)})
right("warp reduce partial mask", """
def k(x, y):
    t = cuda.threadIdx.x
    if t < 8:
        v = x[t]
        for o in (4, 2, 1):
            v += cuda.shfl_xor_sync(0xff, v, o)
        if t == 0:
            y[0] = v
""", 1, 32, lambda: {"x": ramp(8), "y": unwritten(1)}, lambda a: {"y": np.array([a["x"].sum()], FLOAT)})
right("ballot compaction", """
def k(x, y, n):
    t = cuda.threadIdx.x
    v = x[t]
    b = cuda.ballot_sync(0xffffffff, v > 0)
    c = 0
    for q in range(32):
        if q < t:
            c += (b >> q) & 1
    if v > 0:
        y[c] = v
    if t == 0:
        m = 0
        for q in range(32):
            m += (b >> q) & 1
        n[0] = m
""", 1, 32, lambda: {"x": ramp(32), "y": zeros(32), "n": unwritten(1, d=INT)}, lambda a: {"n": np.array([(a["x"]>0).sum()], INT), "y": np.concatenate([a["x"][a["x"]>0], np.zeros((a["x"]<=0).sum(), FLOAT)])}, inputs=["x", "y"])
right("blelloch scan", """
N = 64
def k(x, y):
    s = cuda.shared.array(N, np.float32)
    t = cuda.threadIdx.x
    s[2 * t] = x[2 * t]
    s[2 * t + 1] = x[2 * t + 1]
    off = 1
    d = N // 2
    while d > 0:
        cuda.syncthreads()
        if t < d:
            s[off * (2 * t + 2) - 1] += s[off * (2 * t + 1) - 1]
        off *= 2
        d //= 2
    if t == 0:
        s[N - 1] = np.float32(0)
    d = 1
    while d < N:
        off //= 2
        cuda.syncthreads()
        if t < d:
            a = off * (2 * t + 1) - 1
            b = off * (2 * t + 2) - 1
            v = s[a]
            s[a] = s[b]
            s[b] += v
        d *= 2
    cuda.syncthreads()
    y[2 * t] = s[2 * t]
    y[2 * t + 1] = s[2 * t + 1]
""", 1, 32, lambda: {"x": ramp(64), "y": unwritten(64)}, lambda a: {"y": (np.cumsum(a["x"])-a["x"]).astype(FLOAT)})
right("bitonic", """
def k(x):
    s = cuda.shared.array(64, np.float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    k = 2
    while k <= 64:
        j = k // 2
        while j > 0:
            o = t ^ j
            if o > t:
                a = s[t]
                b = s[o]
                up = (t & k) == 0
                if (a > b) == up:
                    s[t] = b
                    s[o] = a
            cuda.syncthreads()
            j //= 2
        k *= 2
    x[t] = s[t]
""", 1, 64, lambda: {"x": ramp(64)}, lambda a: {"x": np.sort(a["x"])}, inputs=["x"])
right("shared histogram", """
def k(x, h):
    s = cuda.shared.array(8, np.int32)
    t = cuda.threadIdx.x
    if t < 8:
        s[t] = 0
    cuda.syncthreads()
    for i in range(cuda.grid(1), x.shape[0], cuda.gridsize(1)):
        cuda.atomic.add(s, x[i], 1)
    cuda.syncthreads()
    if t < 8:
        cuda.atomic.add(h, t, s[t])
""", 2, 32, lambda: {"x": (np.arange(200)%8).astype(INT), "h": zeros(8, d=INT)}, lambda a: {"h": np.bincount(a["x"], minlength=8).astype(INT)}, inputs=["x", "h"])
right("padded transpose", """
def k(x, y):
    s = cuda.shared.array((8, 9), np.float32)
    a = cuda.threadIdx.x
    b = cuda.threadIdx.y
    s[b, a] = x[b, a]
    cuda.syncthreads()
    y[b, a] = s[a, b]
""", 1, (8, 8), lambda: {"x": ramp(8, 8), "y": unwritten(8, 8)}, lambda a: {"y": a["x"].T.copy()})
right("producer consumer flag release acquire", """
def k(flag, d, y):
    if cuda.blockIdx.x == 0:
        d[0] = np.float32(5)
        add_release(flag, 0, 1)
    else:
        while load_acquire(flag, 0) == 0:
            pass
        y[0] = d[0]
""", 2, 1, lambda: {"flag": zeros(1, d=INT), "d": unwritten(1), "y": unwritten(1)}, lambda a: {"y": np.array([5], FLOAT)}, inputs=["flag"])
right("producer consumer fences", """
def k(flag, d, y):
    if cuda.blockIdx.x == 0:
        d[0] = np.float32(5)
        cuda.threadfence()
        cuda.atomic.exch(flag, 0, 1)
    else:
        while cuda.atomic.add(flag, 0, 0) == 0:
            pass
        cuda.threadfence()
        y[0] = d[0]
""", 2, 1, lambda: {"flag": zeros(1, d=INT), "d": unwritten(1), "y": unwritten(1)}, lambda a: {"y": np.array([5], FLOAT)}, inputs=["flag"])
right("ring queue", """
def k(full, empty, q, x, y):
    if cuda.blockIdx.x == 0:
        for i in range(6):
            while load_acquire(empty, 0) + 2 <= i:
                pass
            q[i % 2] = x[i]
            add_release(full, 0, 1)
    else:
        for i in range(6):
            while load_acquire(full, 0) <= i:
                pass
            y[i] = q[i % 2]
            add_release(empty, 0, 1)
""", 2, 1, lambda: {"full": zeros(1, d=INT), "empty": zeros(1, d=INT), "q": unwritten(2), "x": ramp(6), "y": unwritten(6)}, lambda a: {"y": a["x"]}, inputs=["full", "empty", "x"])
right("syncwarp exchange", """
def k(x, y):
    s = cuda.shared.array(64, np.float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncwarp()
    y[t] = s[t ^ 1]
""", 1, 64, lambda: {"x": ramp(64), "y": unwritten(64)}, lambda a: {"y": a["x"].reshape(-1, 2)[:, ::-1].ravel().copy()})
right("warp shared reduce syncwarp", """
def k(x, y):
    s = cuda.shared.array(32, np.float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncwarp()
    for o in (16, 8, 4, 2, 1):
        v = s[t ^ o]
        cuda.syncwarp()
        s[t] = s[t] + v
        cuda.syncwarp()
    y[t] = s[t]
""", 1, 32, lambda: {"x": ramp(32), "y": unwritten(32)}, lambda a: {"y": np.full(32, a["x"].sum(), FLOAT)})
right("early exit no later barrier", """
def k(x, y):
    i = cuda.grid(1)
    if i >= x.shape[0]:
        return
    y[i] = x[i]
""", 3, 32, lambda: {"x": ramp(70), "y": unwritten(70)}, lambda a: {"y": a["x"]})
right("barrier in uniform if", """
def k(x, y):
    s = cuda.shared.array(32, np.float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    if cuda.blockIdx.x == 0:
        cuda.syncthreads()
        y[t] = s[31 - t]
""", 2, 32, lambda: {"x": ramp(32), "y": unwritten(32)}, lambda a: {"y": a["x"][::-1].copy()})
right("matvec warp per row", """
def k(a, x, y):
    w = cuda.threadIdx.x // 32
    l = cuda.threadIdx.x % 32
    row = cuda.blockIdx.x * 2 + w
    v = np.float32(0)
    for c in range(l, a.shape[1], 32):
        v += a[row, c] * x[c]
    for o in (16, 8, 4, 2, 1):
        v += cuda.shfl_xor_sync(0xffffffff, v, o)
    if l == 0:
        y[row] = v
""", 2, 64, lambda: {"a": ramp(4, 50), "x": ramp(50), "y": unwritten(4)}, lambda a: {"y": a["a"]@a["x"]})
right("atomic slot allocation", """
def k(x, n, y):
    i = cuda.grid(1)
    if x[i] > 0:
        y[cuda.atomic.add(n, 0, 1)] = x[i]
""", 2, 16, lambda: {"x": ramp(32), "n": zeros(1, d=INT), "y": zeros(32)}, lambda a: {"n": np.array([(a["x"]>0).sum()], INT)}, inputs=["x", "n", "y"])
right("spin on grid via atomics barrier", """
def k(c, p, y):
    b = cuda.blockIdx.x
    p[b] = b + 1
    cuda.threadfence()
    cuda.atomic.add(c, 0, 1)
    while cuda.atomic.add(c, 0, 0) < cuda.gridDim.x:
        pass
    cuda.threadfence()
    y[b] = p[(b + 1) % cuda.gridDim.x]
""", 4, 1, lambda: {"c": zeros(1, d=INT), "p": unwritten(4, d=INT), "y": unwritten(4, d=INT)}, lambda a: {"y": np.array([2, 3, 4, 1], INT)}, inputs=["c"])
right("block lock by thread 0 with barrier", """
def k(lock, c):
    t = cuda.threadIdx.x
    if t == 0:
        while cuda.atomic.cas(lock, 0, 0, 1) != 0:
            pass
        cuda.threadfence()
    cuda.syncthreads()
    c[t] = c[t] + 1
    cuda.syncthreads()
    if t == 0:
        cuda.threadfence()
        cuda.atomic.exch(lock, 0, 0)
""", 3, 32, lambda: {"lock": zeros(1, d=INT), "c": zeros(32, d=INT)}, lambda a: {"c": np.full(32, 3, INT)}, inputs=["lock", "c"])
right("shared reuse with barrier in loop", """
def k(x, y):
    s = cuda.shared.array(32, np.float32)
    t = cuda.threadIdx.x
    for r in range(3):
        s[t] = x[r * 32 + t]
        cuda.syncthreads()
        y[r * 32 + t] = s[31 - t]
        cuda.syncthreads()
""", 1, 32, lambda: {"x": ramp(96), "y": unwritten(96)}, lambda a: {"y": a["x"].reshape(3, 32)[:, ::-1].ravel().copy()})
right("halo stencil", getsource(stencil_with_halo), 3, 32, lambda: {"x": ramp(80), "y": unwritten(80)}, lambda a: {"y": (np.convolve(a["x"], [1, 1, 1], "same")).astype(FLOAT)})
right("same value stores", """
def k(x, y):
    i = cuda.grid(1)
    if x[i] > 1:
        cuda.atomic.exch(y, 0, 1)
""", 2, 32, lambda: {"x": ramp(64), "y": zeros(1, d=INT)}, lambda a: {"y": np.array([1], INT)}, inputs=["x", "y"])
right("shfl divergent then reconverge", """
def k(x, y):
    t = cuda.threadIdx.x
    v = x[t]
    if t < 16:
        v = cuda.shfl_xor_sync(0xffff, v, 1)
    else:
        v = cuda.shfl_xor_sync(0xffff0000, v, 2)
    w = cuda.shfl_sync(0xffffffff, v, 0)
    y[t] = v + w
""", 1, 32, lambda: {"x": ramp(32), "y": unwritten(32)}, lambda a: {"y": (lambda v: v+v[0])(np.concatenate([a["x"][:16][np.arange(16)^1], a["x"][(np.arange(16, 32))^2]]))})
right("seq lock by barrier of grid, column sums", """
def k(x, p, y):
    b = cuda.blockIdx.x
    t = cuda.threadIdx.x
    v = np.float32(0)
    for r in range(b, x.shape[0], cuda.gridDim.x):
        v += x[r, t]
    p[b, t] = v
    cuda.cg.this_grid().sync()
    if b == 0:
        v = np.float32(0)
        for q in range(cuda.gridDim.x):
            v += p[q, t]
        y[t] = v
""", 3, 16, lambda: {"x": ramp(10, 16), "p": unwritten(3, 16), "y": unwritten(16)}, lambda a: {"y": a["x"].sum(0)})
