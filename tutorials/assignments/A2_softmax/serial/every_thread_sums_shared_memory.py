# refused by: work, work (hidden)
# The row is loaded once into shared memory, and every thread goes through all of it.


def softmax(x, y):
    row, thread = cuda.blockIdx.x, cuda.threadIdx.x
    kept = cuda.shared.array(COLUMNS, np.float32)
    for col in range(thread, x.shape[1], THREADS):
        kept[col] = x[row, col]
    cuda.syncthreads()
    top, total = LOWEST, ZERO
    for col in range(x.shape[1]):
        top = max(top, kept[col])
    for col in range(x.shape[1]):
        total += math.exp(kept[col] - top)
    for col in range(thread, x.shape[1], THREADS):
        y[row, col] = math.exp(kept[col] - top) / total
