# A2: the softmax of each row of a matrix, by 64 threads a row. The handout says what the kernel may use.
# This file is kernel text. The stepper reads it; Python does not run it.
# Answer the questions that `python -m minisitch.course questions A2 --student NAME` prints.

import math

import numpy as np
from numba import cuda

PREDICTIONS = (None, None, None)

THREADS = 64
COLUMNS = 640  # the most that a row has
ZERO = np.float32(0)
LOWEST = np.float32(-np.inf)


# Block r has row r. x and y are float32 matrices of one shape.
def softmax(x, y):
    # solution: softmax
    row, thread = cuda.blockIdx.x, cuda.threadIdx.x
    part = cuda.shared.array(THREADS, np.float32)
    kept = cuda.shared.array(COLUMNS, np.float32)
    top = LOWEST
    for col in range(thread, x.shape[1], THREADS):
        kept[col] = x[row, col]
        top = max(top, kept[col])
    part[thread] = top
    cuda.syncthreads()  # A: every part is there
    step = THREADS // 2
    while step > 0:
        if thread < step:
            part[thread] = max(part[thread], part[thread + step])
        cuda.syncthreads()  # B: this step is done
        step //= 2
    top = part[0]
    cuda.syncthreads()  # C: everyone has read the top
    total = ZERO
    for col in range(thread, x.shape[1], THREADS):
        # variant: weights
        kept[col] = math.exp(kept[col] - top)
        total += kept[col]
        # end variant
        # variant: logs
        kept[col] = kept[col] - top
        total += math.exp(kept[col])
        # end variant
    part[thread] = total
    cuda.syncthreads()  # D: every part is there
    step = THREADS // 2
    while step > 0:
        if thread < step:
            part[thread] += part[thread + step]
        cuda.syncthreads()  # E: this step is done
        step //= 2
    for col in range(thread, x.shape[1], THREADS):
        # variant: weights
        y[row, col] = kept[col] / part[0]
        # end variant
        # variant: logs
        y[row, col] = kept[col] - math.log(part[0])
        # end variant
    # end solution
