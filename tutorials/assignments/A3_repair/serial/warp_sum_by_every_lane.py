# refused by: warp_sum, warp_sum (hidden)
# Every lane adds up all 32 numbers from shared memory.


def warp_sum(x, y):
    lane, warp = cuda.threadIdx.x % 32, cuda.threadIdx.x // 32
    s = cuda.shared.array((2, 32), np.float32)
    s[warp, lane] = x[cuda.grid(1)]
    cuda.syncwarp()
    total = ZERO
    for k in range(32):
        total += s[warp, k]
    if lane == 0:
        y[cuda.blockIdx.x * 2 + warp] = total
