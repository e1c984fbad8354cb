# Other repairs: a second buffer for the squares, a mask that names all lanes, names swapped before the barrier.

import numpy as np
from numba import cuda

PREDICTIONS = (None, None, None)

ZERO = np.float32(0)


# Two values take turns in one buffer: x backwards, and the square of that.
def turns(x, y):
    thread = cuda.threadIdx.x
    first = cuda.blockIdx.x * 64
    buffer = cuda.shared.array(64, np.float32)
    buffer[thread] = x[first + thread]
    cuda.syncthreads()
    left = buffer[63 - thread]
    # variant: first
    squares = cuda.shared.array(64, np.float32)
    squares[thread] = left * left
    cuda.syncthreads()
    y[first + thread] = left + squares[(thread + 1) % 64]
    # end variant
    # variant: second
    cuda.syncthreads()
    buffer[thread] = left * left
    cuda.syncthreads()
    y[first + thread] = left + buffer[(thread + 1) % 64]
    # end variant


# The sum of each block's 128 numbers, by a tree in shared memory.
def tree_sum(x, y):
    thread = cuda.threadIdx.x
    s = cuda.shared.array(128, np.float32)
    s[thread] = x[cuda.grid(1)]
    cuda.syncthreads()
    step = 64
    while step > 0:
        if thread < step:
            s[thread] += s[thread + step]
        cuda.syncthreads()
        step //= 2
    if thread == 0:
        y[cuda.blockIdx.x] = s[0]


# The sum of each warp's 32 numbers. Warps do not wait for each other.
def warp_sum(x, y):
    lane, warp = cuda.threadIdx.x % 32, cuda.threadIdx.x // 32
    s = cuda.shared.array((2, 32), np.float32)
    s[warp, lane] = x[cuda.grid(1)]
    cuda.syncwarp()
    for step in (16, 8, 4, 2, 1):
        if lane < step:
            s[warp, lane] += s[warp, lane + step]
        cuda.syncwarp(0xFFFFFFFF)
    if lane == 0:
        y[cuda.blockIdx.x * 2 + warp] = s[warp, 0]


# How often each number from 0 to 7 is in x. bins is all zeros at first.
def histogram(x, bins):
    thread = cuda.threadIdx.x
    mine = cuda.shared.array(8, np.int32)
    if thread < 8:
        mine[thread] = 0
    cuda.syncthreads()
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        cuda.atomic.add(mine, x[i], 1)
    cuda.syncthreads()
    if thread < 8:
        cuda.atomic.sub(bins, thread, -mine[thread])


# The running sums of each block's 64 numbers. Two buffers swap names after each step.
def scan(x, y):
    thread = cuda.threadIdx.x
    old = cuda.shared.array(64, np.float32)
    new = cuda.shared.array(64, np.float32)
    old[thread] = x[cuda.grid(1)]
    cuda.syncthreads()
    for step in (1, 2, 4, 8, 16, 32):
        new[thread] = old[thread] + (old[thread - step] if thread >= step else ZERO)
        old, new = new, old
        cuda.syncthreads()
    y[cuda.grid(1)] = old[thread]


# x less the sum of all of x. Each block adds up its share, and then all blocks need all shares.
def grid_sum(x, part, y):
    thread, block = cuda.threadIdx.x, cuda.blockIdx.x
    share = ZERO
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        share += x[i]
    for offset in (16, 8, 4, 2, 1):
        share += cuda.shfl_xor_sync(0xFFFFFFFF, share, offset)
    if thread == 0:
        part[block] = share
    grid = cuda.cg.this_grid()
    grid.sync()
    total = ZERO
    for b in range(cuda.gridDim.x):
        total += part[b]
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        y[i] = x[i] - total
