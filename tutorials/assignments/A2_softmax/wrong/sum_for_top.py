# refused by: right
# The second tree takes the largest part instead of the sum.


def softmax(x, y):
    row, thread = cuda.blockIdx.x, cuda.threadIdx.x
    part = cuda.shared.array(THREADS, np.float32)
    kept = cuda.shared.array(COLUMNS, np.float32)
    top = LOWEST
    for col in range(thread, x.shape[1], THREADS):
        kept[col] = x[row, col]
        top = max(top, kept[col])
    part[thread] = top
    cuda.syncthreads()
    step = THREADS // 2
    while step > 0:
        if thread < step:
            part[thread] = max(part[thread], part[thread + step])
        cuda.syncthreads()
        step //= 2
    top = part[0]
    cuda.syncthreads()
    total = ZERO
    for col in range(thread, x.shape[1], THREADS):
        kept[col] = math.exp(kept[col] - top)
        total += kept[col]
    part[thread] = total
    cuda.syncthreads()
    step = THREADS // 2
    while step > 0:
        if thread < step:
            part[thread] = max(part[thread], part[thread + step])
        cuda.syncthreads()
        step //= 2
    for col in range(thread, x.shape[1], THREADS):
        y[row, col] = kept[col] / part[0]
