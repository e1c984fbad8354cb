"""Right kernels of a course, for the stepper's verdicts: see ``test_right_verdicts.py``."""

from __future__ import annotations

import numpy as np

F, I = np.float32, np.int32


def fl(*s):
    return (np.arange(int(np.prod(s)), dtype=F).reshape(s) % 7) - 3


def z(*s, d=F):
    return np.zeros(s, d)


def un(*s, d=F):
    return np.full(s, 77, d)


RIGHT = {}


def r(name, text, grid, block, arrays, want, **o):
    RIGHT[name] = (text, grid, block, arrays, want, o)


r("grid barrier two phase","""
def k(x, p, y):
    g = cuda.cg.this_grid()
    i = cuda.grid(1)
    p[i] = x[i] * np.float32(2)
    g.sync()
    n = cuda.gridsize(1)
    y[i] = p[(i + 1) % n]
""",4,32,lambda:{"x":fl(128),"p":un(128),"y":un(128)},lambda a:{"y":np.roll(a["x"]*2,-1)})
r("three grid barriers swap","""
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
""",2,32,lambda:{"a":fl(64),"b":un(64),"y":un(64)},lambda a:{"y":np.roll(a["a"],-3)+3},inputs=["a"])
r("last block ticket with fence","""
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
""",4,32,lambda:{"x":fl(128),"part":un(4),"ticket":z(1,d=I),"y":un(1)},lambda a:{"y":np.array([a["x"].sum()],F)},inputs=["x","ticket"])
r("cas add float via ints","""
def k(x, y):
    i = cuda.grid(1)
    done = 0
    while done == 0:
        old = cuda.atomic.add(y, 0, 0)
        if cuda.atomic.cas(y, 0, old, old + x[i]) == old:
            done = 1
""",2,8,lambda:{"x":np.arange(16,dtype=I),"y":z(1,d=I)},lambda a:{"y":np.array([120],I)},inputs=["x","y"])
r("cas max","""
def k(x, y):
    i = cuda.grid(1)
    old = cuda.atomic.max(y, 0, -1)
    while old < x[i]:
        old = cuda.atomic.cas(y, 0, old, x[i])
""",2,8,lambda:{"x":(np.arange(16)*7%16).astype(I),"y":z(1,d=I)},lambda a:{"y":np.array([15],I)},inputs=["x","y"])
r("lock critical section with fences","""
def k(lock, c):
    if cuda.threadIdx.x == 0:
        while cuda.atomic.cas(lock, 0, 0, 1) != 0:
            pass
        cuda.threadfence()
        c[0] = c[0] + 1
        cuda.threadfence()
        cuda.atomic.exch(lock, 0, 0)
""",5,32,lambda:{"lock":z(1,d=I),"c":z(1,d=I)},lambda a:{"c":np.array([5],I)},inputs=["lock","c"])
r("ticket lock","""
def k(t, s, c):
    mine = cuda.atomic.add(t, 0, 1)
    while cuda.atomic.add(s, 0, 0) != mine:
        pass
    cuda.threadfence()
    c[0] = c[0] * 2 + 1
    cuda.threadfence()
    cuda.atomic.add(s, 0, 1)
""",4,1,lambda:{"t":z(1,d=I),"s":z(1,d=I),"c":z(1,d=I)},lambda a:{"c":np.array([15],I)},inputs=["t","s","c"])
r("double buffer tiles","""
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
""",1,32,lambda:{"x":fl(128),"y":un(32)},lambda a:{"y":a["x"].reshape(4,32).sum(0)[::-1].copy()})
r("tree reduction odd n","""
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
""",1,75,lambda:{"x":fl(75),"y":un(1)},lambda a:{"y":np.array([a["x"].sum()],F)})
r("warp reduce partial mask","""
def k(x, y):
    t = cuda.threadIdx.x
    if t < 8:
        v = x[t]
        for o in (4, 2, 1):
            v += cuda.shfl_xor_sync(0xff, v, o)
        if t == 0:
            y[0] = v
""",1,32,lambda:{"x":fl(8),"y":un(1)},lambda a:{"y":np.array([a["x"].sum()],F)})
r("ballot compaction","""
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
""",1,32,lambda:{"x":fl(32),"y":z(32),"n":un(1,d=I)},lambda a:{"n":np.array([(a["x"]>0).sum()],I),"y":np.concatenate([a["x"][a["x"]>0],np.zeros((a["x"]<=0).sum(),F)])},inputs=["x","y"])
r("blelloch scan","""
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
""",1,32,lambda:{"x":fl(64),"y":un(64)},lambda a:{"y":(np.cumsum(a["x"])-a["x"]).astype(F)})
r("bitonic","""
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
""",1,64,lambda:{"x":fl(64)},lambda a:{"x":np.sort(a["x"])},inputs=["x"])
r("shared histogram","""
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
""",2,32,lambda:{"x":(np.arange(200)%8).astype(I),"h":z(8,d=I)},lambda a:{"h":np.bincount(a["x"],minlength=8).astype(I)},inputs=["x","h"])
r("padded transpose","""
def k(x, y):
    s = cuda.shared.array((8, 9), np.float32)
    a = cuda.threadIdx.x
    b = cuda.threadIdx.y
    s[b, a] = x[b, a]
    cuda.syncthreads()
    y[b, a] = s[a, b]
""",1,(8,8),lambda:{"x":fl(8,8),"y":un(8,8)},lambda a:{"y":a["x"].T.copy()})
r("producer consumer flag release acquire","""
def k(flag, d, y):
    if cuda.blockIdx.x == 0:
        d[0] = np.float32(5)
        add_release(flag, 0, 1)
    else:
        while load_acquire(flag, 0) == 0:
            pass
        y[0] = d[0]
""",2,1,lambda:{"flag":z(1,d=I),"d":un(1),"y":un(1)},lambda a:{"y":np.array([5],F)},inputs=["flag"])
r("producer consumer fences","""
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
""",2,1,lambda:{"flag":z(1,d=I),"d":un(1),"y":un(1)},lambda a:{"y":np.array([5],F)},inputs=["flag"])
r("ring queue","""
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
""",2,1,lambda:{"full":z(1,d=I),"empty":z(1,d=I),"q":un(2),"x":fl(6),"y":un(6)},lambda a:{"y":a["x"]},inputs=["full","empty","x"])
r("syncwarp exchange","""
def k(x, y):
    s = cuda.shared.array(64, np.float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncwarp()
    y[t] = s[t ^ 1]
""",1,64,lambda:{"x":fl(64),"y":un(64)},lambda a:{"y":a["x"].reshape(-1,2)[:,::-1].ravel().copy()})
r("warp shared reduce syncwarp","""
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
""",1,32,lambda:{"x":fl(32),"y":un(32)},lambda a:{"y":np.full(32,a["x"].sum(),F)})
r("early exit no later barrier","""
def k(x, y):
    i = cuda.grid(1)
    if i >= x.shape[0]:
        return
    y[i] = x[i]
""",3,32,lambda:{"x":fl(70),"y":un(70)},lambda a:{"y":a["x"]})
r("barrier in uniform if","""
def k(x, y):
    s = cuda.shared.array(32, np.float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    if cuda.blockIdx.x == 0:
        cuda.syncthreads()
        y[t] = s[31 - t]
""",2,32,lambda:{"x":fl(32),"y":un(32)},lambda a:{"y":a["x"][::-1].copy()})
r("matvec warp per row","""
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
""",2,64,lambda:{"a":fl(4,50),"x":fl(50),"y":un(4)},lambda a:{"y":a["a"]@a["x"]})
r("atomic slot allocation","""
def k(x, n, y):
    i = cuda.grid(1)
    if x[i] > 0:
        y[cuda.atomic.add(n, 0, 1)] = x[i]
""",2,16,lambda:{"x":fl(32),"n":z(1,d=I),"y":z(32)},lambda a:{"n":np.array([(a["x"]>0).sum()],I)},inputs=["x","n","y"])
r("spin on grid via atomics barrier","""
def k(c, p, y):
    b = cuda.blockIdx.x
    p[b] = b + 1
    cuda.threadfence()
    cuda.atomic.add(c, 0, 1)
    while cuda.atomic.add(c, 0, 0) < cuda.gridDim.x:
        pass
    cuda.threadfence()
    y[b] = p[(b + 1) % cuda.gridDim.x]
""",4,1,lambda:{"c":z(1,d=I),"p":un(4,d=I),"y":un(4,d=I)},lambda a:{"y":np.array([2,3,4,1],I)},inputs=["c"])
r("block lock by thread 0 with barrier","""
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
""",3,32,lambda:{"lock":z(1,d=I),"c":z(32,d=I)},lambda a:{"c":np.full(32,3,I)},inputs=["lock","c"])
r("shared reuse with barrier in loop","""
def k(x, y):
    s = cuda.shared.array(32, np.float32)
    t = cuda.threadIdx.x
    for r in range(3):
        s[t] = x[r * 32 + t]
        cuda.syncthreads()
        y[r * 32 + t] = s[31 - t]
        cuda.syncthreads()
""",1,32,lambda:{"x":fl(96),"y":un(96)},lambda a:{"y":a["x"].reshape(3,32)[:,::-1].ravel().copy()})
r("halo stencil","""
def k(x, y):
    s = cuda.shared.array(34, np.float32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    n = x.shape[0]
    s[t + 1] = x[i] if i < n else np.float32(0)
    if t == 0:
        s[0] = x[i - 1] if i > 0 else np.float32(0)
    if t == 31:
        s[33] = x[i + 1] if i + 1 < n else np.float32(0)
    cuda.syncthreads()
    if i < n:
        y[i] = s[t] + s[t + 1] + s[t + 2]
""",3,32,lambda:{"x":fl(80),"y":un(80)},lambda a:{"y":(np.convolve(a["x"],[1,1,1],"same")).astype(F)})
r("same value stores","""
def k(x, y):
    i = cuda.grid(1)
    if x[i] > 1:
        cuda.atomic.exch(y, 0, 1)
""",2,32,lambda:{"x":fl(64),"y":z(1,d=I)},lambda a:{"y":np.array([1],I)},inputs=["x","y"])
r("shfl divergent then reconverge","""
def k(x, y):
    t = cuda.threadIdx.x
    v = x[t]
    if t < 16:
        v = cuda.shfl_xor_sync(0xffff, v, 1)
    else:
        v = cuda.shfl_xor_sync(0xffff0000, v, 2)
    w = cuda.shfl_sync(0xffffffff, v, 0)
    y[t] = v + w
""",1,32,lambda:{"x":fl(32),"y":un(32)},lambda a:{"y":(lambda v:v+v[0])(np.concatenate([a["x"][:16][np.arange(16)^1],a["x"][(np.arange(16,32))^2]]))})
r("seq lock by barrier of grid, column sums","""
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
""",3,16,lambda:{"x":fl(10,16),"p":un(3,16),"y":un(16)},lambda a:{"y":a["x"].sum(0)})
