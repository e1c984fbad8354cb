# refused by: work (hidden)
# The total is added up again for every column.


def softmax(x, y):
    row, thread = cuda.blockIdx.x, cuda.threadIdx.x
    kept = cuda.shared.array(COLUMNS, np.float32)
    for col in range(thread, x.shape[1], THREADS):
        kept[col] = x[row, col]
    cuda.syncthreads()
    for col in range(thread, x.shape[1], THREADS):
        top, total = LOWEST, ZERO
        for other in range(x.shape[1]):
            top = max(top, kept[other])
        for other in range(x.shape[1]):
            total += math.exp(kept[other] - top)
        y[row, col] = math.exp(kept[col] - top) / total
