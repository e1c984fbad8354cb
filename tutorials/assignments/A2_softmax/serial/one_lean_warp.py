# refused by: work, work (hidden)
# The first warp does all the work, with as little around it as it can.


def softmax(x, y):
    row, thread = cuda.blockIdx.x, cuda.threadIdx.x
    kept = cuda.shared.array(COLUMNS, np.float32)
    if thread < 32:
        top, total = LOWEST, ZERO
        for col in range(thread, x.shape[1], 32):
            kept[col] = x[row, col]
            top = max(top, kept[col])
        for offset in (16, 8, 4, 2, 1):
            top = max(top, cuda.shfl_xor_sync(0xFFFFFFFF, top, offset))
        for col in range(thread, x.shape[1], 32):
            kept[col] = math.exp(kept[col] - top)
            total += kept[col]
        for offset in (16, 8, 4, 2, 1):
            total += cuda.shfl_xor_sync(0xFFFFFFFF, total, offset)
        for col in range(thread, x.shape[1], 32):
            y[row, col] = kept[col] / total
