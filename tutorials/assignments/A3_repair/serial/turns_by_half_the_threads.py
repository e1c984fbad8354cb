# refused by: turns, turns (hidden)
# Half of the threads write two results each.


def turns(x, y):
    thread, first = cuda.threadIdx.x, cuda.blockIdx.x * 64
    if thread < 32:
        for k in range(thread, 64, 32):
            left, right = x[first + 63 - k], x[first + 63 - (k + 1) % 64]
            y[first + k] = left + right * right
