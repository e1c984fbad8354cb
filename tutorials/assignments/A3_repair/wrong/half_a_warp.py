# refused by: warp_sum
# The mask names 16 lanes of the 32 that come.


def warp_sum(x, y):
    lane, warp = cuda.threadIdx.x % 32, cuda.threadIdx.x // 32
    s = cuda.shared.array((2, 32), np.float32)
    s[warp, lane] = x[cuda.grid(1)]
    cuda.syncwarp()
    for step in (16, 8, 4, 2, 1):
        if lane < step:
            s[warp, lane] += s[warp, lane + step]
        cuda.syncwarp(0xFFFF)
    if lane == 0:
        y[cuda.blockIdx.x * 2 + warp] = s[warp, 0]
