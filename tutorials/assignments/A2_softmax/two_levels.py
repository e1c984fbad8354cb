# Two levels in place of a tree: 8 threads fold 8 parts each, then every thread folds the 8 results.

import math

import numpy as np
from numba import cuda

PREDICTIONS = (None, None, None)

THREADS = 64
COLUMNS = 640  # the most that a row has
ZERO = np.float32(0)
LOWEST = np.float32(-np.inf)


def softmax(x, y):
    row, thread, cols = cuda.blockIdx.x, cuda.threadIdx.x, x.shape[1]
    part = cuda.shared.array(64, np.float32)
    eight = cuda.shared.array(8, np.float32)
    sums = cuda.shared.array(8, np.float32)
    kept = cuda.local.array(10, np.float32)
    top = LOWEST
    k = 0
    for c in range(thread, cols, THREADS):
        kept[k] = x[row, c]
        top = max(top, kept[k])
        k = k + 1
    part[thread] = top
    cuda.syncthreads()
    if thread < 8:
        for i in range(thread, 64, 8):
            top = max(top, part[i])
        eight[thread] = top
    cuda.syncthreads()
    for i in range(8):
        top = max(top, eight[i])
    total = ZERO
    for i in range(k):
        # variant: weights
        kept[i] = math.exp(kept[i] - top)
        total = total + kept[i]
        # end variant
        # variant: logs
        kept[i] = kept[i] - top
        total = total + math.exp(kept[i])
        # end variant
    part[thread] = total
    cuda.syncthreads()
    if thread < 8:
        total = ZERO
        for i in range(thread, 64, 8):
            total = total + part[i]
        sums[thread] = total
    cuda.syncthreads()
    total = ZERO
    for i in range(8):
        total = total + sums[i]
    k = 0
    for c in range(thread, cols, THREADS):
        # variant: weights
        y[row, c] = kept[k] / total
        # end variant
        # variant: logs
        y[row, c] = kept[k] - math.log(total)
        # end variant
        k = k + 1
