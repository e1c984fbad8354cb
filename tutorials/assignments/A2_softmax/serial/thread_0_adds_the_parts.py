# refused by: work, work (hidden)
# Every thread has its part, and thread 0 goes through all 64 parts.


def softmax(x, y):
    row, thread = cuda.blockIdx.x, cuda.threadIdx.x
    part = cuda.shared.array(THREADS, np.float32)
    kept = cuda.shared.array(COLUMNS, np.float32)
    found = cuda.shared.array(2, np.float32)
    top, total = LOWEST, ZERO
    for col in range(thread, x.shape[1], THREADS):
        kept[col] = x[row, col]
        top = max(top, kept[col])
    part[thread] = top
    cuda.syncthreads()
    if thread == 0:
        for other in range(1, THREADS):
            top = max(top, part[other])
        found[0] = top
    cuda.syncthreads()
    top = found[0]
    for col in range(thread, x.shape[1], THREADS):
        kept[col] = math.exp(kept[col] - top)
        total += kept[col]
    part[thread] = total
    cuda.syncthreads()
    if thread == 0:
        for other in range(1, THREADS):
            total += part[other]
        found[1] = total
    cuda.syncthreads()
    for col in range(thread, x.shape[1], THREADS):
        y[row, col] = kept[col] / found[1]
