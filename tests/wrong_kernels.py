"""Wrong kernels of a course: a right one with one mistake, or a text of its own. See ``test_right_verdicts.py``."""

from __future__ import annotations

import numpy as np
from verdict_kernels import INT, RIGHT, ramp, unwritten, zeros

WRONG = {}


def mistake(name, old, new, base, grid=None, arrays=None, **options):
    """A right kernel with ``old`` replaced by ``new``."""
    text, usual, block, given, want, told = RIGHT[base]
    assert old in text, (name, old)
    WRONG[name] = (text.replace(old, new), grid or usual, block, arrays or given, want, told | options)


def wrong(name, text, grid, block, arrays, want=lambda a: {}, **options):
    WRONG[name] = (text, grid, block, arrays, want, options)


mistake("no grid sync", "    g.sync()\n", "", "grid barrier two phase")
mistake("syncthreads for grid sync", "    g.sync()\n", "    cuda.syncthreads()\n", "grid barrier two phase")
mistake("grid sync in if", "    g.sync()\n", "    if i < 100:\n        g.sync()\n", "grid barrier two phase")
mistake("grid sync one block skips", "    g.sync()\n", "    if cuda.blockIdx.x != 2:\n        g.sync()\n", "grid barrier two phase")
mistake("second grid sync lost", "        a[i] = b[i] + np.float32(1)\n        grid.sync()\n", "        a[i] = b[i] + np.float32(1)\n", "three grid barriers swap")
mistake("first grid sync lost", "        b[i] = a[(i + 1) % n]\n        grid.sync()\n", "        b[i] = a[(i + 1) % n]\n", "three grid barriers swap")
mistake("more blocks than wave", "", "", "grid barrier two phase", wave=2)
mistake("ticket without fence", "        cuda.threadfence()\n        s[0]", "        s[0]", "last block ticket with fence")
mistake("ticket no acquire fence", "        cuda.threadfence()\n        if t == 0:\n            w", "        if t == 0:\n            w", "last block ticket with fence")
mistake("ticket off by one", "cuda.gridDim.x - 1", "cuda.gridDim.x", "last block ticket with fence", outputs=["y"])
mistake("ticket too early", "cuda.gridDim.x - 1", "cuda.gridDim.x - 2", "last block ticket with fence")
mistake("ticket shared no barrier", "    cuda.syncthreads()\n    if s[0]", "    if s[0]", "last block ticket with fence")
mistake("fence after ticket", "        cuda.threadfence()\n        s[0] = cuda.atomic.add(ticket, 0, 1)\n", "        s[0] = cuda.atomic.add(ticket, 0, 1)\n        cuda.threadfence()\n", "last block ticket with fence")
mistake("block fence for ticket", "        cuda.threadfence()\n        s[0]", "        cuda.threadfence_block()\n        s[0]", "last block ticket with fence")
mistake("cas ignores result", "        if cuda.atomic.cas(y, 0, old, old + x[i]) == old:\n            done = 1", "        cuda.atomic.cas(y, 0, old, old + x[i])\n        done = 1", "cas add float via ints")
mistake("cas reads plainly", "old = cuda.atomic.add(y, 0, 0)", "old = y[0]", "cas add float via ints")
mistake("cas once max", "    while old < x[i]:", "    if old < x[i]:", "cas max")
mistake("lock without fence release", "        c[0] = c[0] + 1\n        cuda.threadfence()\n", "        c[0] = c[0] + 1\n", "lock critical section with fences")
mistake("lock without fence acquire", "            pass\n        cuda.threadfence()\n        c[0]", "            pass\n        c[0]", "lock critical section with fences")
mistake("lock released first", "        c[0] = c[0] + 1\n        cuda.threadfence()\n        cuda.atomic.exch(lock, 0, 0)", "        cuda.atomic.exch(lock, 0, 0)\n        c[0] = c[0] + 1", "lock critical section with fences")
mistake("lock never released", "        cuda.atomic.exch(lock, 0, 0)\n", "", "lock critical section with fences")
mistake("lock released by store", "        cuda.atomic.exch(lock, 0, 0)\n", "        lock[0] = 0\n", "lock critical section with fences")
mistake("lock polled by load", "cuda.atomic.cas(lock, 0, 0, 1) != 0", "lock[0] != 0", "lock critical section with fences")
mistake("ticket lock wrong compare", "!= mine:", "< mine - 1:", "ticket lock")
mistake("ticket lock forgets serving", "    cuda.atomic.add(s, 0, 1)\n", "", "ticket lock")
mistake("ticket lock read plainly", "while cuda.atomic.add(s, 0, 0) != mine:", "while s[0] != mine:", "ticket lock")
mistake("double buffer same half", "s[(k + 1) % 2, t] =", "s[k % 2, t] =", "double buffer tiles")
mistake("double buffer no barrier", "        acc += s[k % 2, 31 - t]\n        cuda.syncthreads()\n", "        acc += s[k % 2, 31 - t]\n", "double buffer tiles")
mistake("double buffer out of bounds", "    if k < 3:\n", "    if k < 4:\n", "double buffer tiles")
mistake("double buffer barrier in if", "        cuda.syncthreads()\n    y", "        if t < 16:\n            cuda.syncthreads()\n    y", "double buffer tiles")
mistake("tree no barrier", "            s[t] += s[t + h]\n        cuda.syncthreads()\n", "            s[t] += s[t + h]\n", "tree reduction odd n")
mistake("tree first barrier", "    s[t] = x[t]\n    cuda.syncthreads()\n", "    s[t] = x[t]\n", "tree reduction odd n")
mistake("tree barrier inside if", "            s[t] += s[t + h]\n        cuda.syncthreads()\n", "            s[t] += s[t + h]\n            cuda.syncthreads()\n", "tree reduction odd n")
mistake("tree off by one", "if t + h < n:", "if t + h <= n:", "tree reduction odd n")
mistake("tree floor half", "h = (n + 1) // 2", "h = n // 2", "tree reduction odd n")
mistake("tree no guard", "        if t + h < n:\n            s[t]", "        if t < 64:\n            s[t]", "tree reduction odd n")
mistake("shuffle full mask in if", "0xff, v, o", "0xffffffff, v, o", "warp reduce partial mask")
mistake("shuffle mask too small", "0xffffffff, v, o", "0xffff, v, o", "matvec warp per row")
mistake("compaction lt", "if q < t:", "if q <= t:", "ballot compaction")
mistake("ballot in if", "    b = cuda.ballot_sync(0xffffffff, v > 0)\n", "    b = 0\n    if v > 0:\n        b = cuda.ballot_sync(0xffffffff, v > 0)\n", "ballot compaction")
mistake("scan no barrier up", "        cuda.syncthreads()\n        if t < d:\n            s[off * (2 * t + 2) - 1]", "        if t < d:\n            s[off * (2 * t + 2) - 1]", "blelloch scan")
mistake("scan no barrier down", "        cuda.syncthreads()\n        if t < d:\n            a", "        if t < d:\n            a", "blelloch scan")
mistake("scan no clear", "        s[N - 1] = np.float32(0)\n", "        pass\n", "blelloch scan")
mistake("bitonic no barrier", "            cuda.syncthreads()\n            j", "            j", "bitonic")
mistake("bitonic both swap", "if o > t:", "if o != t:", "bitonic")
mistake("histogram no atomic", "cuda.atomic.add(s, x[i], 1)", "s[x[i]] += 1", "shared histogram")
mistake("histogram no zero", "    if t < 8:\n        s[t] = 0\n", "", "shared histogram")
mistake("histogram barrier 1", "        s[t] = 0\n    cuda.syncthreads()\n", "        s[t] = 0\n", "shared histogram")
mistake("histogram barrier 2", "    cuda.syncthreads()\n    if t < 8:\n        cuda", "    if t < 8:\n        cuda", "shared histogram")
mistake("histogram global store", "cuda.atomic.add(h, t, s[t])", "h[t] += s[t]", "shared histogram")
mistake("transpose no barrier", "    cuda.syncthreads()\n", "", "padded transpose")
mistake("transpose swapped shape", "(8, 9)", "(9, 7)", "padded transpose")
mistake("flag plain store", "        add_release(flag, 0, 1)", "        flag[0] = 1", "producer consumer flag release acquire")
mistake("flag before data", "        d[0] = np.float32(5)\n        add_release(flag, 0, 1)", "        add_release(flag, 0, 1)\n        d[0] = np.float32(5)", "producer consumer flag release acquire")
mistake("flag plain read", "load_acquire(flag, 0) == 0", "flag[0] == 0", "producer consumer flag release acquire")
mistake("fences lost producer", "        cuda.threadfence()\n        cuda.atomic.exch", "        cuda.atomic.exch", "producer consumer fences")
mistake("fences lost consumer", "            pass\n        cuda.threadfence()\n", "            pass\n", "producer consumer fences")
mistake("wrong flag waited", "== 0:", "== 1:", "producer consumer fences")
mistake("queue overruns", "+ 2 <= i", "+ 3 <= i", "ring queue")
mistake("queue read early", "while load_acquire(full, 0) <= i", "while load_acquire(full, 0) < i", "ring queue")
mistake("queue frees early", "            y[i] = q[i % 2]\n            add_release(empty, 0, 1)", "            add_release(empty, 0, 1)\n            y[i] = q[i % 2]", "ring queue")
mistake("queue never freed", "            add_release(empty, 0, 1)\n", "", "ring queue")
mistake("no syncwarp", "    cuda.syncwarp()\n    y", "    y", "syncwarp exchange")
mistake("syncwarp across warps", "t ^ 1", "t ^ 32", "syncwarp exchange")
mistake("warp reduce one syncwarp", "        v = s[t ^ o]\n        cuda.syncwarp()\n", "        v = s[t ^ o]\n", "warp shared reduce syncwarp")
mistake("warp reduce last syncwarp", "        s[t] = s[t] + v\n        cuda.syncwarp()\n", "        s[t] = s[t] + v\n", "warp shared reduce syncwarp")
mistake("guard off by one", "if i >= x.shape[0]:", "if i > x.shape[0]:", "early exit no later barrier")
mistake("early exit before barrier", "    y[i] = x[i]\n", "    cuda.syncthreads()\n    y[i] = x[i]\n", "early exit no later barrier")
mistake("barrier after divergent if", "    if cuda.blockIdx.x == 0:\n        cuda.syncthreads()\n", "    if t < 16:\n        cuda.syncthreads()\n", "barrier in uniform if", grid=1)
mistake("atomic slot by load", "y[cuda.atomic.add(n, 0, 1)] = x[i]", "y[n[0]] = x[i]\n        n[0] += 1", "atomic slot allocation")
mistake("spin barrier no fence before", "    cuda.threadfence()\n    cuda.atomic.add(c, 0, 1)\n", "    cuda.atomic.add(c, 0, 1)\n", "spin on grid via atomics barrier")
mistake("spin barrier le", "< cuda.gridDim.x:", "< cuda.gridDim.x - 1:", "spin on grid via atomics barrier")
mistake("spin barrier too many", "< cuda.gridDim.x:", "<= cuda.gridDim.x:", "spin on grid via atomics barrier")
mistake("reuse 1", "        cuda.syncthreads()\n        y[r", "        y[r", "shared reuse with barrier in loop")
mistake("reuse 2", "31 - t]\n        cuda.syncthreads()\n", "31 - t]\n", "shared reuse with barrier in loop")
mistake("halo missing left", "    if t == 0:\n        s[0] = x[i - 1] if i > 0 else np.float32(0)\n", "", "halo stencil")
mistake("halo unguarded", "x[i - 1] if i > 0 else np.float32(0)", "x[i - 1]", "halo stencil")
mistake("halo last", "x[i + 1] if i + 1 < n else np.float32(0)", "x[i + 1]", "halo stencil", arrays=lambda: {"x": ramp(96), "y": unwritten(96)})
mistake("halo store unguarded", "    if i < n:\n        y[i]", "    if i <= n:\n        y[i]", "halo stencil")
mistake("plain stores differ", "cuda.atomic.exch(y, 0, 1)", "y[0] = i", "same value stores")
mistake("shfl wrong mask half", "0xffff0000, v, 2", "0xffff, v, 2", "shfl divergent then reconverge")
mistake("shfl full in divergence", "0xffff, v, 1", "0xffffffff, v, 1", "shfl divergent then reconverge")
mistake("column sums without grid", "    cuda.cg.this_grid().sync()\n", "", "seq lock by barrier of grid, column sums")
mistake("column all blocks write", "    if b == 0:\n        v", "    if b >= 0:\n        v", "seq lock by barrier of grid, column sums")
mistake("column too few rows", "range(b, x.shape[0], cuda.gridDim.x)", "range(b, x.shape[0] + 1, cuda.gridDim.x)", "seq lock by barrier of grid, column sums")
wrong("dynamic shared", """
def k(x):
    s = cuda.shared.array(0, np.float32)
    s[cuda.threadIdx.x] = x[0]
""", 1, 32, lambda: {"x": ramp(1)})
wrong("shared too large", """
def k(x):
    s = cuda.shared.array(20000, np.float32)
    s[cuda.threadIdx.x] = np.float32(1)
    x[cuda.threadIdx.x] = s[cuda.threadIdx.x]
""", 1, 32, lambda: {"x": unwritten(32)})
wrong("dot accumulates plainly", """
def k(x, y):
    y[0] += x[cuda.grid(1)]
""", 2, 32, lambda: {"x": ramp(64), "y": zeros(1)}, inputs=["x", "y"])
wrong("reads next in place", """
def k(x):
    i = cuda.grid(1)
    if i + 1 < x.shape[0]:
        x[i] = x[i + 1]
""", 2, 32, lambda: {"x": ramp(64)}, inputs=["x"])
wrong("lock in one warp spins inside divergence", """
def k(lock, c):
    while cuda.atomic.cas(lock, 0, 0, 1) != 0:
        pass
    c[0] = c[0] + 1
    cuda.atomic.exch(lock, 0, 0)
""", 1, 32, lambda: {"lock": zeros(1, d=INT), "c": zeros(1, d=INT)}, lambda a: {"c": np.array([32], INT)}, inputs=["lock", "c"])
wrong("deadlock two locks", """
def k(l, c):
    b = cuda.blockIdx.x
    while cuda.atomic.cas(l, b, 0, 1) != 0:
        pass
    while cuda.atomic.cas(l, 1 - b, 0, 1) != 0:
        pass
    cuda.atomic.add(c, 0, 1)
    cuda.atomic.exch(l, 1 - b, 0)
    cuda.atomic.exch(l, b, 0)
""", 2, 1, lambda: {"l": zeros(2, d=INT), "c": zeros(1, d=INT)}, lambda a: {"c": np.array([2], INT)}, inputs=["l", "c"])
wrong("barrier twice for some", """
def k(x):
    t = cuda.threadIdx.x
    for i in range(t % 2 + 1):
        cuda.syncthreads()
    x[t] = np.float32(1)
""", 1, 32, lambda: {"x": unwritten(32)})
wrong("flag reset race", """
def k(f, y):
    b = cuda.blockIdx.x
    if b == 0:
        cuda.atomic.exch(f, 0, 1)
        cuda.atomic.exch(f, 0, 0)
    else:
        while cuda.atomic.add(f, 0, 0) == 0:
            pass
        y[0] = 1
""", 2, 1, lambda: {"f": zeros(1, d=INT), "y": unwritten(1, d=INT)}, lambda a: {"y": np.array([1], INT)}, inputs=["f"])
wrong("warp waits for warp mates flag in divergence", """
def k(f, y):
    t = cuda.threadIdx.x
    if t == 0:
        while cuda.atomic.add(f, 0, 0) == 0:
            pass
        y[0] = 1
    cuda.syncwarp()
    if t == 1:
        cuda.atomic.exch(f, 0, 1)
""", 1, 32, lambda: {"f": zeros(1, d=INT), "y": unwritten(1, d=INT)}, lambda a: {"y": np.array([1], INT)}, inputs=["f"])
wrong("int32 overflow of index", """
def k(x, y):
    i = np.int32(cuda.grid(1)) * np.int32(100000000)
    y[cuda.grid(1)] = x[np.int32(i * 100)]
""", 1, 32, lambda: {"x": ramp(32), "y": unwritten(32)})
wrong("y without guard 2d", """
def k(x, y):
    r = cuda.threadIdx.y + cuda.blockIdx.y * cuda.blockDim.y
    c = cuda.threadIdx.x + cuda.blockIdx.x * cuda.blockDim.x
    y[r, c] = x[r, c]
""", (2, 2), (8, 8), lambda: {"x": ramp(12, 16), "y": unwritten(12, 16)})
wrong("swapped axes", """
def k(x, y):
    r = cuda.threadIdx.x
    c = cuda.threadIdx.y
    y[r, c] = x[r, c]
""", 1, (8, 4), lambda: {"x": ramp(4, 8), "y": unwritten(4, 8)})
wrong("stale shared across blocks", """
def k(x, y):
    s = cuda.shared.array(32, np.float32)
    t = cuda.threadIdx.x
    if cuda.blockIdx.x == 0:
        s[t] = x[t]
    cuda.syncthreads()
    y[cuda.grid(1)] = s[t]
""", 2, 32, lambda: {"x": ramp(32), "y": unwritten(64)})
