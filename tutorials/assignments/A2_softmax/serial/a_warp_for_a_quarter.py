# refused by: work, work (hidden)
# Sixteen threads do all the work.


def softmax(x, y):
    row, thread = cuda.blockIdx.x, cuda.threadIdx.x
    part = cuda.shared.array(THREADS, np.float32)
    kept = cuda.shared.array(COLUMNS, np.float32)
    top, total, step = LOWEST, ZERO, 8
    if thread < 16:
        for col in range(thread, x.shape[1], 16):
            kept[col] = x[row, col]
            top = max(top, kept[col])
        part[thread] = top
    cuda.syncthreads()
    while step > 0:
        if thread < step:
            part[thread] = max(part[thread], part[thread + step])
        cuda.syncthreads()
        step //= 2
    top, step = part[0], 8
    cuda.syncthreads()
    if thread < 16:
        for col in range(thread, x.shape[1], 16):
            kept[col] = math.exp(kept[col] - top)
            total += kept[col]
        part[thread] = total
    cuda.syncthreads()
    while step > 0:
        if thread < step:
            part[thread] += part[thread + step]
        cuda.syncthreads()
        step //= 2
    if thread < 16:
        for col in range(thread, x.shape[1], 16):
            y[row, col] = kept[col] / part[0]
