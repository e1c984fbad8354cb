# refused by: work, work (hidden)
# The first warp does all the work by shuffles, and the second has nothing to do.


def softmax(x, y):
    row, thread = cuda.blockIdx.x, cuda.threadIdx.x
    if thread < 32:
        top, total = LOWEST, ZERO
        kept = cuda.local.array(20, np.float32)
        for k in range(20):
            col = thread + 32 * k
            if col < x.shape[1]:
                kept[k] = x[row, col]
                top = max(top, kept[k])
        for offset in (16, 8, 4, 2, 1):
            top = max(top, cuda.shfl_xor_sync(0xFFFFFFFF, top, offset))
        for k in range(20):
            if thread + 32 * k < x.shape[1]:
                kept[k] = math.exp(kept[k] - top)
                total += kept[k]
        for offset in (16, 8, 4, 2, 1):
            total += cuda.shfl_xor_sync(0xFFFFFFFF, total, offset)
        for k in range(20):
            col = thread + 32 * k
            if col < x.shape[1]:
                y[row, col] = kept[k] / total
