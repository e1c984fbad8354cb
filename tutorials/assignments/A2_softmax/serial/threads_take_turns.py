# refused by: work, work (hidden)
# Each thread adds its part to the total when it is its turn, and a barrier ends each turn.


def softmax(x, y):
    row, thread = cuda.blockIdx.x, cuda.threadIdx.x
    found = cuda.shared.array(2, np.float32)
    kept = cuda.shared.array(COLUMNS, np.float32)
    if thread == 0:
        found[0] = LOWEST
        found[1] = ZERO
    for turn in range(THREADS):
        cuda.syncthreads()
        if thread == turn:
            for col in range(thread, x.shape[1], THREADS):
                kept[col] = x[row, col]
                found[0] = max(found[0], kept[col])
    for turn in range(THREADS):
        cuda.syncthreads()
        if thread == turn:
            for col in range(thread, x.shape[1], THREADS):
                kept[col] = math.exp(kept[col] - found[0])
                found[1] += kept[col]
    cuda.syncthreads()
    for col in range(thread, x.shape[1], THREADS):
        y[row, col] = kept[col] / found[1]
