# refused by: warp_sum, warp_sum (hidden)
# Lane 0 adds up the 32 numbers of its warp.


def warp_sum(x, y):
    lane, warp = cuda.threadIdx.x % 32, cuda.threadIdx.x // 32
    if lane == 0:
        total = ZERO
        for k in range(32):
            total += x[cuda.grid(1) + k]
        y[cuda.blockIdx.x * 2 + warp] = total
