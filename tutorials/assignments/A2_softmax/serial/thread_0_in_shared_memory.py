# refused by: work, work (hidden)
# All threads load and store, and thread 0 alone finds the top and the total in shared memory.


def softmax(x, y):
    row, thread = cuda.blockIdx.x, cuda.threadIdx.x
    kept = cuda.shared.array(COLUMNS, np.float32)
    found = cuda.shared.array(2, np.float32)
    for col in range(thread, x.shape[1], THREADS):
        kept[col] = x[row, col]
    cuda.syncthreads()
    if thread == 0:
        top, total = LOWEST, ZERO
        for col in range(x.shape[1]):
            top = max(top, kept[col])
        for col in range(x.shape[1]):
            total += math.exp(kept[col] - top)
        found[0] = top
        found[1] = total
    cuda.syncthreads()
    for col in range(thread, x.shape[1], THREADS):
        y[row, col] = math.exp(kept[col] - found[0]) / found[1]
