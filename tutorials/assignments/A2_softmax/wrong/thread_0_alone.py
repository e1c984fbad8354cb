# refused by: work
# Thread 0 does all the work, and the others watch.


def softmax(x, y):
    row = cuda.blockIdx.x
    kept = cuda.shared.array(COLUMNS, np.float32)
    if cuda.threadIdx.x == 0:
        top, total = LOWEST, ZERO
        for col in range(x.shape[1]):
            kept[col] = x[row, col]
            top = max(top, kept[col])
        for col in range(x.shape[1]):
            kept[col] = math.exp(kept[col] - top)
            total += kept[col]
        for col in range(x.shape[1]):
            y[row, col] = kept[col] / total
