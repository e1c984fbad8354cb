# refused by: work, work (hidden)
# Two threads do all the work, and meet in shared memory.


def softmax(x, y):
    row, thread = cuda.blockIdx.x, cuda.threadIdx.x
    part = cuda.shared.array(THREADS, np.float32)
    kept = cuda.shared.array(COLUMNS, np.float32)
    top, total, step = LOWEST, ZERO, 1
    if thread < 2:
        for col in range(thread, x.shape[1], 2):
            kept[col] = x[row, col]
            top = max(top, kept[col])
        part[thread] = top
    cuda.syncthreads()
    while step > 0:
        if thread < step:
            part[thread] = max(part[thread], part[thread + step])
        cuda.syncthreads()
        step //= 2
    top, step = part[0], 1
    cuda.syncthreads()
    if thread < 2:
        for col in range(thread, x.shape[1], 2):
            kept[col] = math.exp(kept[col] - top)
            total += kept[col]
        part[thread] = total
    cuda.syncthreads()
    while step > 0:
        if thread < step:
            part[thread] += part[thread + step]
        cuda.syncthreads()
        step //= 2
    if thread < 2:
        for col in range(thread, x.shape[1], 2):
            y[row, col] = kept[col] / part[0]
