# refused by: work, work (hidden)
# Thread 0 alone reads the row, by atomic operations.


def softmax(x, y):
    row, thread = cuda.blockIdx.x, cuda.threadIdx.x
    kept = cuda.shared.array(COLUMNS, np.float32)
    if thread == 0:
        top, total = LOWEST, ZERO
        for col in range(x.shape[1]):
            kept[col] = cuda.atomic.max(x, (row, col), LOWEST)
            top = max(top, kept[col])
        for col in range(x.shape[1]):
            kept[col] = math.exp(kept[col] - top)
            total += kept[col]
        for col in range(x.shape[1]):
            cuda.atomic.exch(y, (row, col), kept[col] / total)
