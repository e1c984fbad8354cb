# refused by: turns, turns (hidden)
# Thread 0 writes all 64 results.


def turns(x, y):
    first = cuda.blockIdx.x * 64
    if cuda.threadIdx.x == 0:
        for k in range(64):
            left, right = x[first + 63 - k], x[first + 63 - (k + 1) % 64]
            y[first + k] = left + right * right
