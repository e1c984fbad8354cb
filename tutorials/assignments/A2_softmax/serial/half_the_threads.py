# refused by: work, work (hidden)
# The threads of even numbers do all the work.


def softmax(x, y):
    row, thread = cuda.blockIdx.x, cuda.threadIdx.x
    part = cuda.shared.array(THREADS, np.float32)
    kept = cuda.shared.array(COLUMNS, np.float32)
    top, total, step = LOWEST, ZERO, 16
    if thread % 2 == 0:
        for col in range(thread // 2, x.shape[1], 32):
            kept[col] = x[row, col]
            top = max(top, kept[col])
        part[thread // 2] = top
    cuda.syncthreads()
    while step > 0:
        if thread < step:
            part[thread] = max(part[thread], part[thread + step])
        cuda.syncthreads()
        step //= 2
    top, step = part[0], 16
    cuda.syncthreads()
    if thread % 2 == 0:
        for col in range(thread // 2, x.shape[1], 32):
            kept[col] = math.exp(kept[col] - top)
            total += kept[col]
        part[thread // 2] = total
    cuda.syncthreads()
    while step > 0:
        if thread < step:
            part[thread] += part[thread + step]
        cuda.syncthreads()
        step //= 2
    if thread % 2 == 0:
        for col in range(thread // 2, x.shape[1], 32):
            y[row, col] = kept[col] / part[0]
